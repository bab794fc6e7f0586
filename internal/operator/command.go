package operator

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/connect"
	"lockstep.dev/lockstep/internal/controller/lws"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/terminal"
	"lockstep.dev/lockstep/internal/version"
)

// protectionLease is the lease of an operator with --protect-only. An operator for
// LeaderWorkerSets has another lease, which all implementations share.
const protectionLease = "protection.lockstep.dev"

// NewCommand returns "run".
func NewCommand() *cobra.Command {
	f := newFlags()
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the operator in the foreground",
		Long: "Run the operator in the foreground: controllers, webhooks, or both.\n\n" +
			"A flag that is given overrides the configuration file, the file overrides the defaults.\n" +
			"/healthz and /readyz report its state. Ready means that the API server trusts the webhooks'\n" +
			"certificate and that the caches are synced.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.version {
				fmt.Fprintln(cmd.OutOrStdout(), version.Get())
				return nil
			}
			return f.run(cmd)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *flags) run(cmd *cobra.Command) error {
	log := zap.New(zap.UseFlagOptions(&f.zap), zap.WriteTo(terminal.Writer(os.Stderr)))
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	options, err := f.options(cmd.Flags())
	if err != nil {
		return err
	}
	if options.REST, err = connect.Config(f.kubeconfig); err != nil {
		return err
	}
	options.Log = log
	return Run(ctrl.SetupSignalHandler(), options)
}

// flags are those of the command line. Some are fields of Options, and some of its Config.
type flags struct {
	Options
	kubeconfig, gangScheduler string
	protectOnly, version      bool
	zap                       zap.Options
}

// newFlags returns flags that log as in development, with stack traces of panics only.
func newFlags() *flags {
	return &flags{zap: zap.Options{Development: true, StacktraceLevel: zapcore.PanicLevel}}
}

func (f *flags) register(fs *pflag.FlagSet) {
	isOn := os.Getenv("ENABLE_WEBHOOKS") != "false" // the switch of other implementations
	fs.StringVar(&f.ConfigFile, "config", "", "`file` with a Configuration of "+v1alpha1.GroupVersion.String()+"; a flag that is given overrides it")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` with the cluster to use; without, $KUBECONFIG, then the cluster this runs in, then ~/.kube/config")
	fs.StringVar(&f.Namespace, "namespace", ownNamespace(), "the operator's own `namespace`, of its lease and its certificate")
	fs.StringSliceVar(&f.Controllers, "controllers", Controllers(), `controllers to run; "" runs none`)
	fs.BoolVar(&f.version, "version", false, "print the version and exit")
	fs.StringVar(&f.gangScheduler, "gang-scheduler", "", "gang `scheduler` of sets that name none by the annotation "+lwsv1.GangSchedulerAnnotationKey+": "+gang.Volcano+"; or that of sets with spec.scheduling: "+gang.Volcano+" or "+gang.Kubernetes+`; "" is none`)
	fs.BoolVar(&f.protectOnly, "protect-only", false, "only protect PersistentVolumeClaims: needs no LeaderWorkerSets in the cluster, and answers no admission requests for them")
	fs.BoolVar(&f.Webhooks, "webhooks", isOn, "answer admission requests (environment: ENABLE_WEBHOOKS=false)")
	fs.StringVar(&f.CertDir, "webhook-cert-dir", "", "`directory` of tls.crt and tls.key, whose provider also writes the CA bundles of the webhook configurations; without, the operator makes and renews its own certificate")
	fs.Int64Var(&f.CrashLogLines, "crash-log-lines", 0, "`lines` of the log of each failed container to keep in the status of its set, for all who may read the set; needs the role of \"lockstep install --crash-log-lines\"")
	fs.StringVar(&f.Pprof, "pprof-bind-address", off, "loopback `address` of /debug/pprof, for profiles; 0 turns it off. It is open to all users of the machine")
	defaults := &v1alpha1.Configuration{}
	v1alpha1.SetDefaults(defaults)
	bind(fs, defaults)
	logging := flag.NewFlagSet("", flag.ContinueOnError)
	f.zap.BindFlags(logging)
	fs.AddGoFlagSet(logging)
}

// bind adds the flags that are fields of a configuration. Their defaults are its values.
func bind(fs *pflag.FlagSet, c *v1alpha1.Configuration) {
	l := &c.LeaderElection
	fs.BoolVar(c.Protection.Enabled, "protection", *c.Protection.Enabled, "protect PersistentVolumeClaims in use. While this is off, a deleted PVC with the finalizer "+pvc.BarrierFinalizer+" stays until it is on again: set the mode Off first")
	fs.Int32Var(c.Webhook.Port, "webhook-port", *c.Webhook.Port, "`port` of the webhook server")
	fs.StringVar(&c.Webhook.Host, "webhook-host", c.Webhook.Host, "`address` of the webhook server, which its certificate names as well; empty listens on all")
	fs.StringVar(&c.Metrics.BindAddress, "metrics-bind-address", c.Metrics.BindAddress,
		"`address` of /metrics; 0 turns it off. On a loopback address it is plain HTTP and open, on any other HTTPS and only for clients that may get the non-resource URL /metrics")
	fs.StringVar(&c.Health.HealthProbeBindAddress, "health-probe-bind-address", c.Health.HealthProbeBindAddress, "`address` of /healthz and /readyz; 0 turns it off")
	fs.Float32Var(c.ClientConnection.QPS, "kube-api-qps", *c.ClientConnection.QPS, "requests per second to the API server")
	fs.Int32Var(c.ClientConnection.Burst, "kube-api-burst", *c.ClientConnection.Burst, "requests to the API server that may come at once")
	fs.BoolVar(l.LeaderElect, "leader-elect", *l.LeaderElect, "run controllers only while holding the lease")
	fs.DurationVar(&l.LeaseDuration.Duration, "leader-elect-lease-duration", l.LeaseDuration.Duration, "how long a lease that is not renewed stays valid")
	fs.DurationVar(&l.RenewDeadline.Duration, "leader-elect-renew-deadline", l.RenewDeadline.Duration, "how long the leader tries to renew the lease before it stops")
	fs.DurationVar(&l.RetryPeriod.Duration, "leader-elect-retry-period", l.RetryPeriod.Duration, "pause between two tries")
	fs.StringVar(&l.ResourceLock, "leader-elect-resource-lock", l.ResourceLock, "`kind` of lock; only leases is supported")
	fs.StringVar(&l.ResourceName, "leader-elect-resource-name", l.ResourceName, "`name` of the lease")
}

// options returns the settings of the file, overridden by the flags that were given.
func (f *flags) options(given *pflag.FlagSet) (Options, error) {
	c, err := LoadConfig(f.ConfigFile)
	if err != nil {
		return Options{}, err
	}
	fields := pflag.NewFlagSet("", pflag.ContinueOnError)
	bind(fields, c)
	given.Visit(func(flag *pflag.Flag) {
		if fields.Lookup(flag.Name) != nil {
			err = errors.Join(err, fields.Set(flag.Name, flag.Value.String()))
		}
	})
	if given.Changed("gang-scheduler") {
		if c.GangSchedulingManagement = nil; f.gangScheduler != "" {
			c.GangSchedulingManagement = &v1alpha1.GangSchedulingManagement{SchedulerProvider: &f.gangScheduler}
		}
	}
	o := f.Options
	if f.protectOnly {
		o.Controllers, o.Webhooks = []string{Protection}, false
	}
	c.LeaderElection.ResourceName = LeaseName(c, f.protectOnly)
	o.Config = *c
	return o, err
}

// LeaseName returns the name of the lease that replicas with a configuration compete for.
func LeaseName(c *v1alpha1.Configuration, protectOnly bool) string {
	if protectOnly && c.LeaderElection.ResourceName == v1alpha1.DefaultResourceName {
		return protectionLease
	}
	return c.LeaderElection.ResourceName
}

// Names of the controllers that --controllers chooses from.
const (
	LeaderWorkerSet = lws.Name
	Protection      = "protection"
)

// Controllers returns the names of all controllers.
func Controllers() []string { return []string{LeaderWorkerSet, Protection} }

// off is the address that turns a server off.
const off = "0"

// Options are the settings of one operator.
type Options struct {
	// REST reaches the API server. Rate and user agent are set by Run.
	REST *rest.Config
	// Config has its defaults filled in.
	Config v1alpha1.Configuration
	// Namespace is that of the operator, its lease and its certificate.
	Namespace string
	// ConfigFile is the path of Config, or empty. Errors name it.
	ConfigFile string
	// Controllers are the names of those to run. It may be empty.
	Controllers []string
	// Webhooks reports whether admission requests are answered.
	Webhooks bool
	// CertDir, if not empty, has the webhook certificate. Without it, the operator signs
	// its own, unless Config has another directory.
	CertDir string
	// CrashLogLines is how many lines of the log of a failed container are kept in the status of its set.
	CrashLogLines int64
	// Pprof is the address of profiles, on loopback. "0" is none.
	Pprof string
	Log   logr.Logger
}

func (o *Options) validate() error {
	if faults := ValidateConfig(&o.Config); len(faults) > 0 {
		if o.ConfigFile == "" {
			return faults.ToAggregate()
		}
		return fmt.Errorf("configuration %q, with the flags on top: %w", o.ConfigFile, faults.ToAggregate())
	}
	for _, name := range o.Controllers {
		if !slices.Contains(Controllers(), name) {
			return fmt.Errorf("--controllers: there is no controller %q, only: %s", name, strings.Join(Controllers(), ", "))
		}
	}
	if o.Pprof != off && o.Pprof != "" && !onLoopback(o.Pprof) {
		return fmt.Errorf("--pprof-bind-address %q: profiles are for this machine only; use a loopback address such as 127.0.0.1:6060", o.Pprof)
	}
	if err := CheckCrashLogLines(o.CrashLogLines); err != nil {
		return err
	}
	if !o.Webhooks && !o.controls() {
		return errors.New(`nothing to run: --webhooks=false, --controllers and --protection leave nothing; drop one of them`)
	}
	return nil
}

// maxCrashLogLines bounds what the kubelet reads of a log of which 2 KiB are kept.
const maxCrashLogLines = 1000

// CheckCrashLogLines refuses a number of lines that cannot be meant.
func CheckCrashLogLines(lines int64) error {
	if lines < 0 || lines > maxCrashLogLines {
		return fmt.Errorf("--crash-log-lines %d: give 0 to %d", lines, maxCrashLogLines)
	}
	return nil
}

// protects reports whether PVCs are protected.
func (o *Options) protects() bool {
	return *o.Config.Protection.Enabled && slices.Contains(o.Controllers, Protection)
}

// keepsSets reports whether the controllers of LeaderWorkerSets run.
func (o *Options) keepsSets() bool { return slices.Contains(o.Controllers, LeaderWorkerSet) }

// controls reports whether any controller runs.
func (o *Options) controls() bool { return o.protects() || o.keepsSets() }

// elects reports whether this replica competes for the lease. One without controllers does
// not need it, and must not keep it from one with controllers.
func (o *Options) elects() bool {
	return *o.Config.LeaderElection.LeaderElect && o.controls()
}

// certDir returns the directory that another program fills, or nothing.
func (o *Options) certDir() string {
	if o.CertDir == "" && !*o.Config.InternalCertManagement.Enable {
		return o.Config.Webhook.CertDir
	}
	return o.CertDir
}

func (o *Options) restConfig() *rest.Config {
	c := rest.CopyConfig(o.REST)
	c.UserAgent = version.UserAgent()
	c.QPS, c.Burst = *o.Config.ClientConnection.QPS, int(*o.Config.ClientConnection.Burst)
	c.DisableCompression = true // each event of a watch would be compressed by itself
	return c
}

// ownNamespace returns the namespace of the pod that this runs in, or the default.
func ownNamespace() string {
	text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if namespace := strings.TrimSpace(string(text)); err == nil && namespace != "" {
		return namespace
	}
	return "lws-system"
}
