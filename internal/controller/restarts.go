package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
)

// tellFinding has the set look at what its group found: a failure is written down
// by the set before the group acts on it. A group that is ready tells by its
// StatefulSets.
func (r *groupReconciler) tellFinding(set *lwsv1.LeaderWorkerSet, plan lws.Plan) {
	news := r.memory.Found(plan.Finding)
	if f := plan.Finding; f != nil && (f.Failure != nil && !f.Dismissed || news && !f.Ready) {
		r.wakeSet(set)
	}
}

// wakeFailed has groups looked at that a status just written has something to do
// for. No event tells of them where the server drops that part of the status.
func (p *pass) wakeFailed(owner client.Object, status lwsv1.LeaderWorkerSetStatus) {
	set, ok := owner.(*lwsv1.LeaderWorkerSet)
	if !ok {
		return
	}
	for _, group := range condemned(set, status) {
		p.wakeGroup(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: group.Namespace, Name: group.Name}})
	}
}

// ends remembers leaders that end by themselves, nobody deleted them yet, and how
// workers were that have gone. Where the watch missed that, what it knew last may be
// of long before.
func ends(memory *lwscache.Memory, now func() time.Time) handler.EventHandler {
	note := func(object client.Object) {
		if pod, ok := object.(*corev1.Pod); ok && pod.DeletionTimestamp == nil && lws.Ended(pod) && lws.IsLeader(pod, labelledSet(pod).Name) {
			memory.Over(pod, now())
		}
	}
	gone := func(object client.Object) {
		if pod, ok := object.(*corev1.Pod); ok && labelledSet(pod).Name != "" && !lws.IsLeader(pod, labelledSet(pod).Name) {
			memory.Left(pod, now())
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ queue) { note(e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ queue) { note(e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) {
			if !e.DeleteStateUnknown {
				gone(e.Object)
			}
		},
	}
}

// verdicts has groups looked at that a status has something to do for, whoever wrote
// it: the last write of a process that has lost its lease is to be answered, too.
func verdicts() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
		before, ok := e.ObjectOld.(*lwsv1.LeaderWorkerSet)
		after, ok2 := e.ObjectNew.(*lwsv1.LeaderWorkerSet)
		if !ok || !ok2 {
			return
		}
		for _, group := range condemned(before, after.Status) {
			q.Add(ctrl.Request{NamespacedName: group})
		}
	}}
}

// condemned are the groups of which a status tells anew that they failed, or that
// they are due earlier.
func condemned(before *lwsv1.LeaderWorkerSet, after lwsv1.LeaderWorkerSetStatus) []types.NamespacedName {
	var groups []types.NamespacedName
	for i := range after.Restarts {
		r := &after.Restarts[i]
		if told := lws.Failed(before, int(r.Index), r.Leader); told == nil || r.DueAt.Before(&told.DueAt) {
			groups = append(groups, types.NamespacedName{Namespace: before.Namespace, Name: identity.LeaderName(before.Name, int(r.Index))})
		}
	}
	return groups
}
