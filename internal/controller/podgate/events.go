package podgate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"lockstep.dev/lockstep/internal/pvc"
)

// using are the pods that wait and use a claim.
func (r *Reconciler) using(ctx context.Context, claim *corev1.PersistentVolumeClaim) []reconcile.Request {
	return requests(r.gated.Using(ctx, client.ObjectKeyFromObject(claim)))
}

// in are the pods of a namespace that wait.
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

// easing lets through what a pod may have waited for: that a claim came, that it went,
// which the pod is to say, that pods were taken off it, and that it chose another
// mode. One more pod on it is no news to the others: were it, each of those that share
// a claim would read it once for all.
func easing() predicate.TypedPredicate[*corev1.PersistentVolumeClaim] {
	return predicate.TypedFuncs[*corev1.PersistentVolumeClaim]{
		UpdateFunc: func(e event.TypedUpdateEvent[*corev1.PersistentVolumeClaim]) bool {
			was, is := e.ObjectOld, e.ObjectNew
			return was.UID != is.UID || was.Status.Phase != is.Status.Phase ||
				was.Annotations[pvc.ModeKey] != is.Annotations[pvc.ModeKey] ||
				len(was.Annotations[pvc.UsersAnnotation]) > len(is.Annotations[pvc.UsersAnnotation])
		},
	}
}

// relabelled lets through that a namespace chose another mode.
func relabelled() predicate.TypedPredicate[*metav1.PartialObjectMetadata] {
	return predicate.TypedFuncs[*metav1.PartialObjectMetadata]{
		CreateFunc: func(event.TypedCreateEvent[*metav1.PartialObjectMetadata]) bool { return false },
		DeleteFunc: func(event.TypedDeleteEvent[*metav1.PartialObjectMetadata]) bool { return false },
		UpdateFunc: func(e event.TypedUpdateEvent[*metav1.PartialObjectMetadata]) bool {
			return e.ObjectOld.Labels[pvc.ModeKey] != e.ObjectNew.Labels[pvc.ModeKey]
		},
	}
}
