package lws

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/restart"
)

// restarts returns a handler for the pod events that concern the status of restarts: a
// leader gets the annotation that its group is recreated, or a pod begins to run. The
// evidence goes with the leader, so the set does not gather such events.
func (p *pace) restarts() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
		before, ok := e.ObjectOld.(*corev1.Pod)
		after, ok2 := e.ObjectNew.(*corev1.Pod)
		if !ok || !ok2 {
			return
		}
		key := labelledSet(after)
		switch {
		case before.Annotations[restart.AnnotationKey] != after.Annotations[restart.AnnotationKey]:
			q.AddAfter(ctrl.Request{NamespacedName: key}, p.in(key, 0))
		case before.Status.Phase != after.Status.Phase && after.Status.Phase == corev1.PodRunning:
			q.AddAfter(ctrl.Request{NamespacedName: key}, p.in(key, gather))
		}
	}}
}

// recorded returns a handler that reconciles groups whose record is new: a pod may have
// failed between the read that the record was made from and its write.
func recorded() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
		before, ok := e.ObjectOld.(*lwsv1.LeaderWorkerSet)
		after, ok2 := e.ObjectNew.(*lwsv1.LeaderWorkerSet)
		if !ok || !ok2 {
			return
		}
		for _, leader := range restart.NewlyStarted(before, after) {
			q.Add(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: after.Namespace, Name: identity.LeaderName(after.Name, leader)}})
		}
	}}
}
