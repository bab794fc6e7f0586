package operator

import (
	"errors"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/pvc"
)

// flags are those of the command line that are no field of the configuration.
type flags struct {
	config, kubeconfig, namespace string
	controllers                   []string
	webhooks                      bool
	webhookCertDir                string
	pprofAddress                  string
	gangScheduler                 string
	protectOnly                   bool
	version                       bool
	zap                           zap.Options
}

func newFlags() *flags { return &flags{zap: logOptions()} }

func (f *flags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.config, "config", "", "`file` with a Configuration of "+v1alpha1.GroupVersion.String()+"; a flag that is given overrides it")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` with the cluster to use; without, $KUBECONFIG, then the cluster this runs in, then ~/.kube/config")
	fs.StringVar(&f.namespace, "namespace", ownNamespace(), "the operator's own `namespace`, of its lease and its certificate")
	fs.StringSliceVar(&f.controllers, "controllers", Controllers(), `controllers to run; "" runs none`)
	fs.BoolVar(&f.version, "version", false, "print the version and exit")
	fs.StringVar(&f.gangScheduler, "gang-scheduler", "", "gang `scheduler` of sets that name none by the annotation "+lwsv1.GangSchedulerAnnotationKey+": "+gang.Volcano+`; "" is none`)
	fs.BoolVar(&f.protectOnly, "protect-only", false, "only protect PersistentVolumeClaims: needs no LeaderWorkerSets in the cluster, and answers no admission requests for them")
	fs.BoolVar(&f.webhooks, "webhooks", webhooksWanted(), "answer admission requests (environment: ENABLE_WEBHOOKS=false)")
	fs.StringVar(&f.webhookCertDir, "webhook-cert-dir", "", "`directory` of tls.crt, tls.key and, optionally, ca.crt; without, the operator makes and renews its own certificate")
	fs.StringVar(&f.pprofAddress, "pprof-bind-address", off, "loopback `address` of /debug/pprof, for profiles; 0 turns it off. It is open to all users of the machine")
	defaults := &v1alpha1.Configuration{}
	v1alpha1.SetDefaults(defaults)
	bind(fs, defaults)
	fs.AddGoFlagSet(goFlags(f.zap.BindFlags))
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

// override applies the flags that were given to the configuration.
func (f *flags) override(given *pflag.FlagSet, c *v1alpha1.Configuration) error {
	fields := pflag.NewFlagSet("", pflag.ContinueOnError)
	bind(fields, c)
	var err error
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
	return err
}
