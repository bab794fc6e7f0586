package operator

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/controller/pvcfinalizer"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

// protectionLease is the lease of an operator with --protect-only. An operator for
// LeaderWorkerSets has another lease, which all implementations share.
const protectionLease = "protection.lockstep.dev"

// onlyProtect applies --protect-only. The lease is protectionLease, unless another was
// configured.
func (f *flags) onlyProtect(c *v1alpha1.Configuration) {
	f.controllers, f.webhooks = []string{Protection}, false
	if c.LeaderElection.ResourceName == v1alpha1.DefaultResourceName {
		c.LeaderElection.ResourceName = protectionLease
	}
}

// protects reports whether PVCs are protected.
func (o *Options) protects() bool {
	return *o.Config.Protection.Enabled && slices.Contains(o.Controllers, Protection)
}

// keepsSets reports whether the controllers of LeaderWorkerSets run.
func (o *Options) keepsSets() bool { return slices.Contains(o.Controllers, LeaderWorkerSet) }

// controls reports whether any controller runs.
func (o *Options) controls() bool { return o.protects() || o.keepsSets() }

// protection is what the controllers of protection share. Each has its setup method.
type protection struct {
	mgr      ctrl.Manager
	log      logr.Logger
	settings ProtectionSettings
	// caches hold PVCs and namespaces. They are not the manager's: a cache has one selector
	// for a kind, and the controllers of LeaderWorkerSets read PVCs with a label only.
	caches cache.Cache
	// client reads protobuf.
	client kubernetes.Interface
	pods   *pvccache.Pods
	// starter watches kinds that may come and go.
	starter *kinds.Starter
	actor   *apply.Actor
	// report gets what the controller of finalizers does.
	report *report.Protection
}

// setupProtection adds the controllers of protection to the manager.
func (o *Options) setupProtection(mgr ctrl.Manager, starter *kinds.Starter) error {
	caches, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), ByObject: pvccache.ProtectionCaches(),
		DefaultWatchErrorHandler: report.WatchFailed,
	})
	if err != nil {
		return err
	}
	o.warnOfIgnored()
	config := rest.CopyConfig(mgr.GetConfig())
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	p := &protection{
		mgr: mgr, starter: starter, log: o.Log.WithName(Protection), settings: o.protectionSettings(),
		caches: caches, client: client,
		pods:  pvccache.NewPods(pvccache.PodsOf(client), report.WatchFailed),
		actor: apply.New(mgr.GetClient(), mgr.GetAPIReader()),
	}
	for _, setup := range []func() error{
		p.setupCaches,
		p.setupPods,
		p.setupFinalizers,
		p.setupHolds,
		p.setupStrict,
		p.setupGuards,
	} {
		if err := setup(); err != nil {
			return err
		}
	}
	return nil
}

// warnOfIgnored reports configured fields that this version accepts and ignores.
func (o *Options) warnOfIgnored() {
	if o.Config.Protection.UnusedCondition != nil {
		o.Log.Info("configuration: protection.unusedCondition is ignored, and will be refused by the next version; leave it out")
	}
	if o.Config.Protection.ReleaseByTwo {
		o.Log.Info("configuration: protection.releaseByTwo is ignored, and will be refused by the next version; leave it out")
	}
}

// setupCaches fills the caches before anything else runs, on every replica.
func (p *protection) setupCaches() error {
	for object := range pvccache.ProtectionCaches() {
		if _, err := p.caches.GetInformer(context.Background(), object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	if err := p.mgr.AddReadyzCheck("claims", synced(p.caches)); err != nil {
		return err
	}
	return p.mgr.Add(filledFirst{p.caches})
}

// filledFirst is a cache that the manager fills before it starts anything else.
type filledFirst struct{ cache.Cache }

// GetCache marks it as a cache for the manager.
func (f filledFirst) GetCache() cache.Cache { return f.Cache }

// setupPods fills the cache of pods, on every replica.
func (p *protection) setupPods() error {
	if err := p.mgr.AddReadyzCheck("pods", p.podsSynced); err != nil {
		return err
	}
	return p.mgr.Add(everywhere(func(ctx context.Context) error {
		p.pods.Run(ctx)
		return nil
	}))
}

func (p *protection) podsSynced(r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), glance)
	defer cancel()
	return p.pods.AwaitSync(ctx)
}

// setupFinalizers adds the controller that adds and removes finalizers of PVCs.
func (p *protection) setupFinalizers() error {
	c := pvcfinalizer.New(pvcfinalizer.Options{
		Settings: p.settings.Settings,
		Caches:   p.caches,
		Live:     p.mgr.GetAPIReader(),
		Pods:     p.pods,
		Actor:    p.actor,
		Recorder: p.mgr.GetEventRecorder(Protection),
		Log:      p.log,
	})
	p.report = c.Report()
	if err := p.setupVolumes(); err != nil {
		return err
	}
	register(p.report.Metrics())
	if err := p.mgr.Add(c); err != nil {
		return fmt.Errorf("set up the controller of finalizers: %w", err)
	}
	return nil
}

// setupVolumes adds the controller of volumes where the built-in one is off.
func (p *protection) setupVolumes() error {
	if !p.settings.Alone {
		return nil
	}
	if err := (&pvcfinalizer.Volumes{Cached: p.mgr.GetCache(), Actor: p.actor, Report: p.report}).Setup(p.mgr); err != nil {
		return fmt.Errorf("set up the protection of volumes: %w", err)
	}
	return nil
}

// protectionCaches returns what protection reads from the manager's caches.
func (o *Options) protectionCaches() map[client.Object]cache.ByObject {
	if !o.Config.Protection.Alone {
		return nil
	}
	return pvccache.VolumeCaches()
}

// everywhere runs on every replica, with the lease or without.
type everywhere manager.RunnableFunc

// Start implements manager.Runnable.
func (run everywhere) Start(ctx context.Context) error { return run(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }
