package operator

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/controller/lws"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/internal/version"
	"lockstep.dev/lockstep/internal/webhook"
	"lockstep.dev/lockstep/internal/webhook/certs"
)

// heapGrowth is the GOGC of a process that has none: most of the heap are caches, which
// stay.
const heapGrowth = 50

// graceful is how long requests and reconciles in flight may take to end. It is shorter
// than the grace period of the Deployment's pods, 10 s.
const graceful = 8 * time.Second

// fieldOwner is the field manager of the operator's writes of its own configuration.
const fieldOwner = "lockstep"

// Run runs the operator until ctx ends, and then returns nil. It releases the lease, so
// that the next replica does not wait for it to expire. The program must end when Run
// returns.
func Run(ctx context.Context, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	if err := o.preflight(ctx); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	o.Log.Info("starting", "version", version.Get().Version, "server", o.REST.Host, "namespace", o.Namespace,
		"controllers", o.Controllers, "protection", o.protects(), "webhooks", o.Webhooks, "leaderElection", o.elects())
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	keeper, err := o.beginCertificates(ctx, scheme)
	if err != nil {
		return err
	}
	mgr, err := o.assemble(scheme, keeper)
	if err != nil {
		return err
	}
	return runUntil(ctx, mgr)
}

// runUntil runs the manager until ctx ends, and a little longer: a manager whose caches are
// not synced does not end by itself.
func runUntil(ctx context.Context, mgr ctrl.Manager) error {
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(graceful + time.Second):
		return nil
	}
}

// register adds metrics. An earlier setup in this process may have added them already.
func register(collectors []prometheus.Collector) {
	for _, collector := range collectors {
		_ = metrics.Registry.Register(collector)
	}
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, lwsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// assemble returns a manager with everything that runs. keeper may be nil.
func (o *Options) assemble(scheme *runtime.Scheme, keeper *certs.Keeper) (ctrl.Manager, error) {
	settings, err := o.managerOptions(scheme, keeper)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(o.restConfig(), settings)
	if err != nil {
		return nil, err
	}
	register(report.WatchMetrics())
	starter, err := kinds.New(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(everywhere(starter.Run)); err != nil {
		return nil, err
	}
	if o.protects() {
		if err := o.setupProtection(mgr, starter); err != nil {
			return nil, fmt.Errorf("set up protection: %w", err)
		}
	}
	if o.keepsSets() {
		if err := lws.Setup(mgr, starter); err != nil {
			return nil, fmt.Errorf("set up the controllers: %w", err)
		}
	}
	if keeper != nil {
		webhook.Register(mgr.GetWebhookServer(), o.gangs(mgr))
		if err := keeper.Setup(mgr); err != nil {
			return nil, fmt.Errorf("set up the webhook certificate: %w", err)
		}
	}
	return mgr, o.addChecks(mgr, settings.Cache, keeper)
}

func (o *Options) managerOptions(scheme *runtime.Scheme, keeper *certs.Keeper) (ctrl.Options, error) {
	secured, err := tlsOptions(o.Config.TLS)
	if err != nil {
		return ctrl.Options{}, err
	}
	lease, err := o.lease()
	if err != nil {
		return ctrl.Options{}, err
	}
	election, grace := o.Config.LeaderElection, graceful
	settings := ctrl.Options{
		Scheme:                              scheme,
		Logger:                              o.Log,
		Cache:                               o.cacheOptions(keeper),
		Client:                              lws.ClientOptions(),
		Metrics:                             metricsOptions(o.Config.Metrics.BindAddress, secured),
		HealthProbeBindAddress:              o.Config.Health.HealthProbeBindAddress,
		ReadinessEndpointName:               o.Config.Health.ReadinessEndpointName,
		LivenessEndpointName:                o.Config.Health.LivenessEndpointName,
		PprofBindAddress:                    o.pprofAddress(),
		LeaderElection:                      lease != nil,
		LeaderElectionResourceLockInterface: lease,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &election.LeaseDuration.Duration,
		RenewDeadline:                       &election.RenewDeadline.Duration,
		RetryPeriod:                         &election.RetryPeriod.Duration,
		GracefulShutdownTimeout:             &grace,
		// A replica without the lease fills its caches too, and so takes over at once.
		// Names of controllers are unique in one manager only.
		Controller: config.Controller{EnableWarmup: new(true), SkipNameValidation: new(true)},
	}
	if o.keepsSets() {
		settings.NewCache = lwscache.NewCache
	}
	if keeper != nil {
		settings.WebhookServer = o.webhookServer(keeper, secured)
	}
	return settings, nil
}

// cacheOptions returns the caches of what runs.
func (o *Options) cacheOptions(keeper *certs.Keeper) cache.Options {
	options := cache.Options{}
	if o.keepsSets() {
		options = lwscache.CacheOptions()
	}
	objects := maps.Clone(options.ByObject)
	if objects == nil {
		objects = map[client.Object]cache.ByObject{}
	}
	if o.protects() {
		maps.Copy(objects, o.protectionCaches())
	}
	if keeper != nil {
		maps.Copy(objects, keeper.Watched())
	}
	options.ByObject, options.DefaultWatchErrorHandler = objects, report.WatchFailed
	return options
}
