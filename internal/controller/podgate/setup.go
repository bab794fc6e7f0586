package podgate

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

const (
	// workers is how many pods are seen to at a time. Those that share a claim get in
	// each other's way, and look again.
	workers = 8
	// slowest bounds the back-off: a pod waits for us to be scheduled.
	slowest = 30 * time.Second
)

// Options are what the controller works with.
type Options struct {
	Settings pvc.Settings
	Gated    *pvccache.Gated
	// Caches are those of observe.ProtectionCaches, which somebody else starts.
	Caches   cache.Cache
	Claims   *pvccache.Claims
	Actor    *apply.Actor
	Narrator *report.Protection
}

// New returns a Reconciler that is called by somebody else.
func New(o Options) *Reconciler {
	return &Reconciler{settings: o.Settings, gated: o.Gated, claims: o.Claims, act: o.Actor, narrate: o.Narrator}
}

// Setup adds the controller to a manager.
func Setup(mgr ctrl.Manager, o Options) error {
	if err := mgr.Add(o.Gated.Cache()); err != nil {
		return err
	}
	r := New(o)
	return ctrl.NewControllerManagedBy(mgr).
		Named("strict").
		WatchesRawSource(source.Kind(o.Gated.Cache(), &corev1.Pod{}, &handler.TypedEnqueueRequestForObject[*corev1.Pod]{}, predicate.NewTypedPredicateFuncs(pvc.Gated))).
		WatchesRawSource(source.Kind(o.Caches, &corev1.PersistentVolumeClaim{}, handler.TypedEnqueueRequestsFromMapFunc(r.using), easing())).
		WatchesRawSource(source.Kind(o.Caches, pvccache.NewNamespace(""), handler.TypedEnqueueRequestsFromMapFunc(r.in), relabelled())).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, slowest),
		}).
		Complete(r)
}
