// Package operator is "lockstep run": it turns flags and a configuration file
// into one running operator.
//
// It knows where settings come from and which one wins, what must exist before anything
// starts, the order of the start, and when the process is ready. It refuses to know what a
// controller decides and what a webhook answers.
//
//	flags > file > defaults ──► check what is needed ──► certificate ──► webhooks ──► caches ──► lease ──► controllers
package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/controller/disaggregated"
	"lockstep.dev/lockstep/internal/controller/lws"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/lease"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/internal/version"
	"lockstep.dev/lockstep/internal/webhook/certs"
)

const (
	// lastAnswers is how long a replica that ends goes on answering webhook calls at least. Each answer closes its
	// connection: an API server that keeps one sends a call into its end.
	lastAnswers = time.Second
	// graceful is how long requests and reconciles in flight may then take to end. Together they are shorter
	// than the grace period of the Deployment's pods, 15 s, without their preStop hook, 4 s.
	graceful = 8 * time.Second
)

// glance bounds one check of a probe.
const glance = time.Second

// Run runs the operator until ctx ends, gives its last answers, and then returns nil. It releases the lease, so that
// the next replica does not wait for it to expire. The program must end when Run returns.
func Run(ctx context.Context, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	if err := o.preflight(ctx); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		go limitGarbage(ctx)
	}
	o.Log.Info("starting", "version", version.Get().Version, "server", o.REST.Host, "namespace", o.Namespace,
		"controllers", o.Controllers, "protection", o.protects(), "webhooks", o.Webhooks, "leaderElection", o.elects())
	scheme := newScheme()
	keeper, err := o.beginCertificates(ctx, scheme)
	if err != nil {
		return err
	}
	var mgr ctrl.Manager
	assembled := make(chan error, 1)
	go func() {
		var err error
		mgr, err = o.assemble(scheme, keeper, ctx.Done())
		assembled <- err
	}()
	select {
	case err := <-assembled:
		if err != nil {
			return err
		}
	case <-ctx.Done(): // discovery knows no context
		return context.Cause(ctx)
	}
	return o.runUntil(ctx, mgr)
}

// runUntil runs the manager until ctx ends, and a little longer, for the last answers of webhooks. A manager whose
// caches are not synced does not end by itself.
func (o *Options) runUntil(ctx context.Context, mgr ctrl.Manager) error {
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ended := make(chan error, 2)
	go func() { ended <- mgr.Start(running) }()
	context.AfterFunc(ctx, func() {
		if o.Webhooks {
			time.Sleep(lastAnswers)
		}
		end()
		time.Sleep(graceful + time.Second)
		ended <- nil
	})
	return <-ended
}

// register adds metrics. An earlier setup in this process may have added them already.
func register(all ...[]prometheus.Collector) {
	for _, collector := range slices.Concat(all...) {
		_ = metrics.Registry.Register(collector)
	}
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(clientgoscheme.AddToScheme(scheme), lwsv1.AddToScheme(scheme), dsv1.AddToScheme(scheme)))
	return scheme
}

// assemble returns a manager with everything that runs. keeper may be nil. ending is closed when the manager is about
// to end.
func (o *Options) assemble(scheme *runtime.Scheme, keeper *certs.Keeper, ending <-chan struct{}) (ctrl.Manager, error) {
	settings, err := o.managerOptions(scheme, keeper)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(o.restConfig(), settings)
	if err != nil {
		return nil, err
	}
	build := version.Get()
	register(report.WatchMetrics(), report.ServerMetrics(), report.BuildMetrics(build.Version, build.Commit, goruntime.Version()))
	starter, err := kinds.New(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(everywhere(starter.Run)); err != nil {
		return nil, err
	}
	checks := map[string]healthz.Checker{"caches": synced(mgr.GetCache())}
	if o.protects() {
		if err := o.setupProtection(mgr, starter, checks); err != nil {
			return nil, fmt.Errorf("set up protection: %w", err)
		}
	}
	if o.keepsSets() {
		deadline, _ := workload.ParseProgressDeadline(o.Config.Rollout.ProgressDeadline) // zero if it is empty
		err := lws.Setup(mgr, starter, o.scheduler(), disruptionBudgets[o.Config.Disruption.Budget], deadline, o.CrashLogLines)
		if err = errors.Join(err, disaggregated.Setup(mgr, starter)); err != nil {
			return nil, fmt.Errorf("set up the controllers: %w", err)
		}
	}
	var webhooks http.Handler
	if o.Webhooks {
		if webhooks, err = o.webhooks(mgr, starter, ending); err != nil {
			return nil, fmt.Errorf("set up the webhooks: %w", err)
		}
	}
	if keeper != nil {
		if err := keeper.Setup(mgr); err != nil {
			return nil, fmt.Errorf("set up the webhook certificate: %w", err)
		}
	}
	probes, err := o.probes(mgr.GetCache(), settings.Cache, keeper, checks)
	return mgr, errors.Join(err, o.addServers(mgr, keeper, webhooks, probes))
}

func (o *Options) managerOptions(scheme *runtime.Scheme, keeper *certs.Keeper) (ctrl.Options, error) {
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
		Metrics:                             metricsserver.Options{BindAddress: off}, // addServers adds the servers
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
	return settings, nil
}

// cacheOptions returns the caches of what runs.
func (o *Options) cacheOptions(keeper *certs.Keeper) cache.Options {
	options := cache.Options{ByObject: map[client.Object]cache.ByObject{}}
	if o.keepsSets() {
		options = lwscache.CacheOptions()
	}
	if o.protects() && o.Config.Protection.Alone {
		maps.Copy(options.ByObject, pvccache.VolumeCaches())
	}
	if keeper != nil {
		maps.Copy(options.ByObject, keeper.Watched())
	}
	options.DefaultWatchErrorHandler = report.WatchFailed
	return options
}

// lease returns the lock that replicas compete for, or nil without leader election. The library's own lock would have
// another user agent. A request times out early enough for another try before the renew deadline.
func (o *Options) lease() (resourcelock.Interface, error) {
	if !o.elects() {
		return nil, nil
	}
	election := o.Config.LeaderElection
	config := o.restConfig()
	config.Timeout = max(election.RenewDeadline.Duration/2, time.Second)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this replica: %w", err)
	}
	return resourcelock.NewWithLabels(election.ResourceLock, o.Namespace, election.ResourceName, client.CoreV1(), client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: lease.Identity(host)}, lease.Labels(version.Get().Version))
}

// probes answers the probes. A process that answers is alive. It is ready when its caches are synced, with the lease or
// without, and the API server would accept its webhook server.
func (o *Options) probes(caches cache.Cache, cached cache.Options, keeper *certs.Keeper, checks map[string]healthz.Checker) (http.Handler, error) {
	if err := begin(caches, cached.ByObject); err != nil {
		return nil, err
	}
	if keeper != nil {
		checks["certificate"] = func(*http.Request) error { return keeper.Trusted() }
	}
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{
		o.Config.Health.ReadinessEndpointName: checks, o.Config.Health.LivenessEndpointName: {"ping": healthz.Ping},
	} {
		answer := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, answer)
		mux.Handle(path+"/", answer) // each check by itself
	}
	return mux, nil
}

// begin asks for every cache now, so that the check of caches covers all of them. A
// controller that waits for the lease would ask later.
func begin(caches cache.Cache, objects map[client.Object]cache.ByObject) error {
	for object := range objects {
		if _, err := caches.GetInformer(context.Background(), object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return nil
}

func synced(caches cache.Cache) healthz.Checker {
	return soon(func(ctx context.Context) error {
		if !caches.WaitForCacheSync(ctx) {
			return errors.New("the caches are not synced yet")
		}
		return nil
	})
}

// soon answers a probe by a check that it does not wait for.
func soon(check func(context.Context) error) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), glance)
		defer cancel()
		return check(ctx)
	}
}
