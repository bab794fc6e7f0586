package lws

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/lwscache"
)

const (
	// gather is how long updates are gathered before a set is read. Creations and deletions are
	// read at once.
	gather = 30 * time.Millisecond
	// reread is how long after its status was written a set is read again: another writer's
	// status is corrected. Two writers that disagree then write once in this time each.
	reread = time.Second
)

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// requests adds keys to the queue of the controller that it is a source of.
type requests struct{ queue atomic.Pointer[queue] }

// Start implements source.Source.
func (r *requests) Start(_ context.Context, q queue) error {
	r.queue.Store(&q)
	return nil
}

func (r *requests) add(after time.Duration, keys ...types.NamespacedName) {
	q := r.queue.Load()
	if q == nil {
		return // the controller has not started: it reads everything then
	}
	for _, key := range keys {
		(*q).AddAfter(ctrl.Request{NamespacedName: key}, after)
	}
}

// watch turns events into keys: creations and deletions at once, updates that matter after the
// given time.
func watch(keys keysOf, matters func(before, after client.Object) bool, after time.Duration) handler.EventHandler {
	return newPace(time.Now).watch(keys, matters, after)
}

// watch is watch at a pace.
func (p *pace) watch(keys keysOf, matters func(before, after client.Object) bool, after time.Duration) handler.EventHandler {
	at := func(object client.Object, q queue, in time.Duration) {
		for _, key := range keys(object) {
			q.AddAfter(ctrl.Request{NamespacedName: key}, p.in(key, in))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { at(e.Object, q, 0) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { at(e.Object, q, 0) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if matters(e.ObjectOld, e.ObjectNew) {
				at(e.ObjectNew, q, after)
			}
		},
	}
}

// restarts returns a handler for the pod events that concern the status of restarts: a
// leader gets the annotation that its group is recreated or recovered, or a pod begins to run. The
// evidence goes with the leader, so the set does not gather such events.
func (p *pace) restarts() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
		before, after, ok := both[*corev1.Pod](e.ObjectOld, e.ObjectNew)
		if !ok {
			return
		}
		key := labelledSet(after)
		switch {
		case before.Annotations[restart.AnnotationKey] != after.Annotations[restart.AnnotationKey],
			restart.IsRecovered(before) != restart.IsRecovered(after):
			q.AddAfter(ctrl.Request{NamespacedName: key}, p.in(key, 0))
		case before.Status.Phase != after.Status.Phase && after.Status.Phase == corev1.PodRunning:
			q.AddAfter(ctrl.Request{NamespacedName: key}, p.in(key, gather))
		case delayed(before) != delayed(after): // what is over soon is not reported
			q.AddAfter(ctrl.Request{NamespacedName: key}, p.in(key, lws.DelayAfter))
		}
	}}
}

// delayed returns the code of what a pod waits for, or an empty string.
func delayed(pod *corev1.Pod) string {
	code, _ := lws.PodDelay(pod)
	return code
}

// members returns a handler for the ends of pods that belong to a Workload: their PodGroup may be unused now.
func (p *pace) members() handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
		if gang.IsHanded(e.Object) {
			key := labelledSet(e.Object)
			q.AddAfter(ctrl.Request{NamespacedName: key}, p.in(key, gather))
		}
	}}
}

// recorded returns a handler that reconciles groups whose record is new: a pod may have
// failed between the read that the record was made from and its write. Groups whose recreation the
// status counts go on.
func recorded(o *lwscache.Observer) handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
		before, after, ok := both[*lwsv1.LeaderWorkerSet](e.ObjectOld, e.ObjectNew)
		if !ok {
			return
		}
		news := slices.Concat(restart.NewlyStarted(before, after), restart.NewlyCounted(before, after))
		if len(news) == 0 {
			return
		}
		isNew := func(leader *corev1.Pod) bool { return slices.Contains(news, workload.IndexOf(leader)) }
		for _, group := range groupsWhere(o, keyOf(after), isNew) {
			q.Add(ctrl.Request{NamespacedName: group})
		}
	}}
}
