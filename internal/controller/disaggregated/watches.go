package disaggregated

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/identity"
)

// gather is how long events are gathered before a set is read: a step of a rollout changes pods of several roles.
const gather = 30 * time.Millisecond

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// requests adds keys to the queue of the controller that it is a source of.
type requests struct{ queue atomic.Pointer[queue] }

// Start implements source.Source.
func (r *requests) Start(_ context.Context, q queue) error {
	r.queue.Store(&q)
	return nil
}

func (r *requests) add(key types.NamespacedName) {
	if q := r.queue.Load(); q != nil {
		(*q).Add(ctrl.Request{NamespacedName: key})
	}
}

// ownKey returns the set itself.
func ownKey(_ context.Context, object client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}
}

// setOf returns the set of an object's label, or the one that owns it.
func setOf(_ context.Context, object client.Object) []ctrl.Request {
	name := object.GetLabels()[dsv1.SetNameLabelKey]
	if owner := metav1.GetControllerOf(object); name == "" && owner != nil && owner.Kind == string(identity.KindDisaggregatedSet) {
		name = owner.Name
	}
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
}

// watch turns events into sets: updates that matter are gathered.
func watch(sets handler.MapFunc, matters func(before, after client.Object) bool) handler.EventHandler {
	add := func(ctx context.Context, object client.Object, q queue) {
		for _, request := range sets(ctx, object) {
			q.AddAfter(request, gather)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, e.Object, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if matters(e.ObjectOld, e.ObjectNew) {
				add(ctx, e.ObjectOld, q) // it may have lost its label
				add(ctx, e.ObjectNew, q)
			}
		},
	}
}

// changed reports whether an update is more than a resync.
func changed(before, after client.Object) bool {
	return before.GetResourceVersion() != after.GetResourceVersion()
}

// progressed reports whether an update of a pod changed whether it is ready, ends, or holds a node.
func progressed(before, after client.Object) bool {
	was, isPod := before.(*corev1.Pod)
	is, arePods := after.(*corev1.Pod)
	return !isPod || !arePods || (was.DeletionTimestamp == nil) != (is.DeletionTimestamp == nil) || was.Status.Phase != is.Status.Phase ||
		!maps.Equal(was.Labels, is.Labels) || disaggregated.IsReady(was) != disaggregated.IsReady(is)
}
