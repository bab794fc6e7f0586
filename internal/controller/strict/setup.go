package strict

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"lockstep.dev/lockstep/internal/act"
	"lockstep.dev/lockstep/internal/narrate"
	"lockstep.dev/lockstep/internal/observe"
	"lockstep.dev/lockstep/internal/protect"
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
	Settings protect.Settings
	Gated    *observe.Gated
	Claims   *observe.Claims
	Actor    *act.Actor
	Narrator *narrate.Protection
}

// Setup adds the controller to a manager whose cache is one of
// observe.ProtectionCaches.
func Setup(mgr ctrl.Manager, o Options) error {
	if err := mgr.Add(o.Gated.Cache()); err != nil {
		return err
	}
	r := &Reconciler{settings: o.Settings, gated: o.Gated, claims: o.Claims, act: o.Actor, narrate: o.Narrator}
	return ctrl.NewControllerManagedBy(mgr).
		Named("strict").
		WatchesRawSource(source.Kind(o.Gated.Cache(), &corev1.Pod{}, &handler.TypedEnqueueRequestForObject[*corev1.Pod]{}, predicate.NewTypedPredicateFuncs(protect.Gated))).
		WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.PersistentVolumeClaim{}, handler.TypedEnqueueRequestsFromMapFunc(r.using), easing())).
		WatchesRawSource(source.Kind(mgr.GetCache(), observe.NewNamespace(""), handler.TypedEnqueueRequestsFromMapFunc(r.in), relabelled())).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, slowest),
		}).
		Complete(r)
}

func (r *Reconciler) using(ctx context.Context, claim *corev1.PersistentVolumeClaim) []reconcile.Request {
	return requests(r.gated.Using(ctx, client.ObjectKeyFromObject(claim)))
}

func (r *Reconciler) in(ctx context.Context, namespace *metav1.PartialObjectMetadata) []reconcile.Request {
	return requests(r.gated.In(ctx, namespace.Name))
}

// requests leaves out what could not be listed: every pod is looked at again.
func requests(keys []types.NamespacedName, err error) []reconcile.Request {
	if err != nil {
		return nil
	}
	all := make([]reconcile.Request, len(keys))
	for i, key := range keys {
		all[i].NamespacedName = key
	}
	return all
}

// easing lets through what a pod may have waited for: that a claim came, that pods
// were taken off it, and that its mode changed. One more pod on it is no news to the
// others; with that, a claim that many share would have each of them read it for all.
func easing() predicate.TypedPredicate[*corev1.PersistentVolumeClaim] {
	return predicate.TypedFuncs[*corev1.PersistentVolumeClaim]{
		UpdateFunc: func(e event.TypedUpdateEvent[*corev1.PersistentVolumeClaim]) bool {
			was, is := e.ObjectOld, e.ObjectNew
			return was.UID != is.UID || was.Status.Phase != is.Status.Phase || was.Annotations[protect.ModeKey] != is.Annotations[protect.ModeKey] ||
				len(was.Annotations[protect.UsersAnnotation]) > len(is.Annotations[protect.UsersAnnotation])
		},
		// A pod that waits for it to be gone is to say so.
		DeleteFunc: func(event.TypedDeleteEvent[*corev1.PersistentVolumeClaim]) bool { return true },
	}
}

func relabelled() predicate.TypedPredicate[*metav1.PartialObjectMetadata] {
	return predicate.TypedFuncs[*metav1.PartialObjectMetadata]{
		CreateFunc: func(event.TypedCreateEvent[*metav1.PartialObjectMetadata]) bool { return false },
		DeleteFunc: func(event.TypedDeleteEvent[*metav1.PartialObjectMetadata]) bool { return false },
		UpdateFunc: func(e event.TypedUpdateEvent[*metav1.PartialObjectMetadata]) bool {
			return e.ObjectOld.Labels[protect.ModeKey] != e.ObjectNew.Labels[protect.ModeKey]
		},
	}
}
