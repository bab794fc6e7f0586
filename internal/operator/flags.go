package operator

import (
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/pvc"
)

// flags are those of the command line. Their defaults are those of the configuration, so
// that --help is right without a file.
type flags struct {
	config, kubeconfig, namespace string
	controllers                   []string
	webhooks                      bool
	webhookHost, webhookCertDir   string
	webhookPort                   int32
	metricsAddress, healthAddress string
	pprofAddress                  string
	qps                           float32
	burst                         int32
	leaderElect                   bool
	leaseDuration, renewDeadline  time.Duration
	retryPeriod                   time.Duration
	resourceLock, resourceName    string
	gangScheduler                 string
	protection, protectOnly       bool
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
	fs.StringVar(&f.gangScheduler, "gang-scheduler", "", "gang `scheduler` of sets that name none by the annotation "+lwsv1.GangSchedulerAnnotationKey+": "+strings.Join(gang.Names(), ", ")+`; "" is none`)
	fs.BoolVar(&f.protection, "protection", true, "protect PersistentVolumeClaims in use. While this is off, a deleted PVC with the finalizer "+pvc.BarrierFinalizer+" stays until it is on again: set the mode Off first")
	fs.BoolVar(&f.protectOnly, "protect-only", false, "only protect PersistentVolumeClaims: needs no LeaderWorkerSets in the cluster, and answers no admission requests for them")
	f.registerWebhook(fs)
	f.registerServers(fs)
	f.registerLeaderElection(fs)
	fs.AddGoFlagSet(goFlags(f.zap.BindFlags))
}

func (f *flags) registerWebhook(fs *pflag.FlagSet) {
	fs.BoolVar(&f.webhooks, "webhooks", webhooksWanted(), "answer admission requests (environment: ENABLE_WEBHOOKS=false)")
	fs.Int32Var(&f.webhookPort, "webhook-port", v1alpha1.DefaultWebhookPort, "`port` of the webhook server")
	fs.StringVar(&f.webhookHost, "webhook-host", "", "`address` of the webhook server, which its certificate names as well; empty listens on all")
	fs.StringVar(&f.webhookCertDir, "webhook-cert-dir", "", "`directory` of tls.crt, tls.key and, optionally, ca.crt; without, the operator makes and renews its own certificate")
}

func (f *flags) registerServers(fs *pflag.FlagSet) {
	fs.StringVar(&f.metricsAddress, "metrics-bind-address", v1alpha1.DefaultMetricsBindAddress,
		"`address` of /metrics; 0 turns it off. On a loopback address it is plain HTTP and open, on any other HTTPS and only for clients that may get the non-resource URL /metrics")
	fs.StringVar(&f.healthAddress, "health-probe-bind-address", v1alpha1.DefaultHealthProbeAddress, "`address` of /healthz and /readyz; 0 turns it off")
	fs.StringVar(&f.pprofAddress, "pprof-bind-address", off, "loopback `address` of /debug/pprof, for profiles; 0 turns it off. It is open to all users of the machine")
	fs.Float32Var(&f.qps, "kube-api-qps", v1alpha1.DefaultQPS, "requests per second to the API server")
	fs.Int32Var(&f.burst, "kube-api-burst", v1alpha1.DefaultBurst, "requests to the API server that may come at once")
}

func (f *flags) registerLeaderElection(fs *pflag.FlagSet) {
	fs.BoolVar(&f.leaderElect, "leader-elect", true, "run controllers only while holding the lease")
	fs.DurationVar(&f.leaseDuration, "leader-elect-lease-duration", v1alpha1.DefaultLeaseDuration, "how long a lease that is not renewed stays valid")
	fs.DurationVar(&f.renewDeadline, "leader-elect-renew-deadline", v1alpha1.DefaultRenewDeadline, "how long the leader tries to renew the lease before it stops")
	fs.DurationVar(&f.retryPeriod, "leader-elect-retry-period", v1alpha1.DefaultRetryPeriod, "pause between two tries")
	fs.StringVar(&f.resourceLock, "leader-elect-resource-lock", v1alpha1.DefaultResourceLock, "`kind` of lock; only leases is supported")
	fs.StringVar(&f.resourceName, "leader-elect-resource-name", v1alpha1.DefaultResourceName, "`name` of the lease")
}

// override applies the flags that were given to the configuration.
func (f *flags) override(given *pflag.FlagSet, c *v1alpha1.Configuration) {
	for name, assign := range map[string]func(){
		"webhook-port":                func() { c.Webhook.Port = &f.webhookPort },
		"webhook-host":                func() { c.Webhook.Host = f.webhookHost },
		"metrics-bind-address":        func() { c.Metrics.BindAddress = f.metricsAddress },
		"health-probe-bind-address":   func() { c.Health.HealthProbeBindAddress = f.healthAddress },
		"gang-scheduler":              func() { c.GangSchedulingManagement = f.gangs() },
		"protection":                  func() { c.Protection.Enabled = &f.protection },
		"kube-api-qps":                func() { c.ClientConnection.QPS = &f.qps },
		"kube-api-burst":              func() { c.ClientConnection.Burst = &f.burst },
		"leader-elect":                func() { c.LeaderElection.LeaderElect = &f.leaderElect },
		"leader-elect-lease-duration": func() { c.LeaderElection.LeaseDuration = metav1.Duration{Duration: f.leaseDuration} },
		"leader-elect-renew-deadline": func() { c.LeaderElection.RenewDeadline = metav1.Duration{Duration: f.renewDeadline} },
		"leader-elect-retry-period":   func() { c.LeaderElection.RetryPeriod = metav1.Duration{Duration: f.retryPeriod} },
		"leader-elect-resource-lock":  func() { c.LeaderElection.ResourceLock = f.resourceLock },
		"leader-elect-resource-name":  func() { c.LeaderElection.ResourceName = f.resourceName },
	} {
		if given.Changed(name) {
			assign()
		}
	}
}

// gangs returns the block of the configuration that the flag sets.
func (f *flags) gangs() *v1alpha1.GangSchedulingManagement {
	if f.gangScheduler == "" {
		return nil
	}
	return &v1alpha1.GangSchedulingManagement{SchedulerProvider: &f.gangScheduler}
}
