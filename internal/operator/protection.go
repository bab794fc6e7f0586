package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/controller/podgate"
	"lockstep.dev/lockstep/internal/controller/pvcfinalizer"
	"lockstep.dev/lockstep/internal/controller/pvchold"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

// policyInterval is the time between two checks that the policies exist.
const policyInterval = 30 * time.Second

// protection is what the controllers of protection share.
type protection struct {
	ProtectionSettings
	mgr ctrl.Manager
	// caches hold PVCs and namespaces. They are not the manager's: a cache has one selector
	// for a kind, and the controllers of LeaderWorkerSets read PVCs with a label only.
	caches cache.Cache
	// client reads protobuf.
	client kubernetes.Interface
	pods   *pvccache.Pods
	// starter watches kinds that may come and go.
	starter *kinds.Starter
	actor   *apply.Actor
}

// setupProtection adds the controllers of protection to the manager, and what must be filled to the checks.
func (o *Options) setupProtection(mgr ctrl.Manager, starter *kinds.Starter, checks map[string]healthz.Checker) error {
	o.warnOfIgnored()
	caches, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), ByObject: pvccache.ProtectionCaches(),
		DefaultWatchErrorHandler: report.WatchFailed,
	})
	if err != nil {
		return err
	}
	config := rest.CopyConfig(mgr.GetConfig())
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	pods, err := pvccache.PodClient(mgr.GetConfig())
	if err != nil {
		return err
	}
	p := &protection{
		ProtectionSettings: SettingsOf(o.Config.Protection, o.Namespace), mgr: mgr, caches: caches, client: client,
		pods: pvccache.NewPods(pvccache.PodsOf(client, pods), report.WatchFailed), starter: starter, actor: apply.New(mgr.GetClient(), mgr.GetAPIReader()),
	}
	log := o.Log.WithName(Protection)
	finalizers := pvcfinalizer.New(pvcfinalizer.Options{
		Settings: p.Settings, Caches: caches, Live: pvccache.PodLister{Reader: mgr.GetAPIReader(), Pods: pods}, Pods: p.pods,
		Actor: p.actor, Recorder: mgr.GetEventRecorder(Protection), Log: log,
	})
	register(report.HoldMetrics(), finalizers.Report.Metrics())
	checks["claims"], checks["pods"] = synced(caches), soon(p.pods.AwaitSync)
	if err := p.setupCaches(); err != nil {
		return err
	}
	if p.Alone { // no built-in controller keeps volumes
		volumes := &pvcfinalizer.Volumes{Cached: mgr.GetCache(), Actor: p.actor, Report: finalizers.Report}
		if err := volumes.Setup(mgr); err != nil {
			return fmt.Errorf("set up the protection of volumes: %w", err)
		}
	}
	gates := &podgate.Reconciler{
		Settings: p.Settings, Pods: p.pods, Live: mgr.GetAPIReader(), Actor: p.actor, Report: finalizers.Report,
	}
	return errors.Join(mgr.Add(finalizers), p.setupHolds(), gates.Setup(mgr), mgr.Add(p.policies(&report.Policies{Log: log})))
}

// warnOfIgnored reports configured fields that this version accepts and ignores.
func (o *Options) warnOfIgnored() {
	for field, isSet := range map[string]bool{
		"unusedCondition": o.Config.Protection.UnusedCondition != nil, "releaseByTwo": o.Config.Protection.ReleaseByTwo,
	} {
		if isSet {
			o.Log.Info("configuration: protection." + field + " is ignored, and will be refused by the next version; leave it out")
		}
	}
}

// setupCaches fills the caches before anything else runs, and that of pods, on every replica.
func (p *protection) setupCaches() error {
	return errors.Join(
		begin(p.caches, pvccache.ProtectionCaches()),
		p.mgr.Add(filledFirst{p.caches}),
		p.mgr.Add(everywhere(func(ctx context.Context) error {
			p.pods.Run(ctx)
			return nil
		})),
	)
}

// filledFirst is a cache that the manager fills before it starts anything else.
type filledFirst struct{ cache.Cache }

// GetCache marks it as a cache for the manager.
func (f filledFirst) GetCache() cache.Cache { return f.Cache }

// setupHolds adds the controllers that hold PVCs in use: a policy refuses to delete these.
func (p *protection) setupHolds() error {
	workloads, err := pvccache.NewWorkloads(p.client, p.starter, p.Kinds, restart.LargestStarted, report.WatchFailed)
	if err != nil {
		return fmt.Errorf("watch workloads: %w", err)
	}
	reader := pvccache.Reader{Live: p.mgr.GetAPIReader(), Kinds: p.Kinds, Started: restart.LargestStarted, Served: p.starter.Served}
	return errors.Join(
		pvccache.IndexHolds(context.Background(), p.caches),
		pvchold.Setup(p.mgr, pvchold.Options{
			Holds:      &pvccache.Holds{Caches: p.caches, Pods: p.pods, Workloads: workloads, Reader: reader, Settings: p.Settings, Grace: p.Grace},
			Actor:      p.actor,
			Report:     report.NewHolds(report.New(p.mgr.GetEventRecorder(Protection))),
			ReleaseTTL: p.ReleaseTTL,
			Now:        time.Now,
		}),
		p.mgr.Add(everywhere(workloads.Run)),
	)
}

// policies reports deleted policies, on the replica with the lease.
func (p *protection) policies(reported *report.Policies) manager.Runnable {
	check := func(ctx context.Context) {
		if missing, err := pvccache.MissingPolicies(ctx, p.mgr.GetAPIReader(), p.Alone, p.InitialHold); ctx.Err() == nil {
			reported.Missing(missing, err)
		}
	}
	return manager.RunnableFunc(func(ctx context.Context) error {
		wait.UntilWithContext(ctx, check, policyInterval)
		return nil
	})
}

// everywhere runs on every replica, with the lease or without.
type everywhere manager.RunnableFunc

// Start implements manager.Runnable.
func (run everywhere) Start(ctx context.Context) error { return run(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }
