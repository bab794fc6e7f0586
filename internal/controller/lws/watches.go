package lws

import (
	"context"
	"maps"
	"reflect"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/lwscache"
)

// gather is how long updates are gathered before a set is looked at. Creations
// and departures are looked into immediately.
const gather = 30 * time.Millisecond

// reread is how long after its status was written a set is looked at once more: who
// wrote it may have been somebody else, and that is put right. Two who disagree then
// write once in this time each.
const reread = time.Second

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// keysOf returns the keys that an object's event concerns.
type keysOf func(ctx context.Context, object client.Object) []types.NamespacedName

// watch turns events into keys: creations and departures go out immediately,
// updates that matter after the given time.
func watch(keys keysOf, matters func(before, after client.Object) bool, after time.Duration) handler.EventHandler {
	return (*pace)(nil).watch(keys, matters, after)
}

// watch is watch at a pace.
func (p *pace) watch(keys keysOf, matters func(before, after client.Object) bool, after time.Duration) handler.EventHandler {
	at := func(ctx context.Context, object client.Object, q queue, in time.Duration) {
		for _, key := range keys(ctx, object) {
			q.AddAfter(ctrl.Request{NamespacedName: key}, p.in(key, in))
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { at(ctx, e.Object, q, 0) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { at(ctx, e.Object, q, 0) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { at(ctx, e.Object, q, 0) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if matters(e.ObjectOld, e.ObjectNew) {
				at(ctx, e.ObjectNew, q, after)
			}
		},
	}
}

func keyOf(object client.Object) types.NamespacedName { return client.ObjectKeyFromObject(object) }

// labelledSet is the set whose name an object bears as a label.
func labelledSet(object client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetLabels()[lwsv1.SetNameLabelKey]}
}

// setsOf returns the sets that an object's event concerns: the one it is
// labelled with, and the one whose name it bears, whoever it belongs to.
func setsOf(_ context.Context, object client.Object) []types.NamespacedName {
	labelled, own := labelledSet(object), keyOf(object)
	if labelled == own || labelled.Name == "" {
		return []types.NamespacedName{own}
	}
	return []types.NamespacedName{labelled, own}
}

// setOfRevision is the set that a revision is labelled with, and the one that it belongs
// to whatever its label says. A StatefulSet's own history bears that label, too, and
// concerns nobody: as many come as a set has groups.
func setOfRevision(_ context.Context, object client.Object) []types.NamespacedName {
	if lwscache.OfStatefulSet(object) {
		return nil
	}
	labelled := labelledSet(object)
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != string(identity.KindLeaderWorkerSet) || owner.Name == labelled.Name {
		return []types.NamespacedName{labelled}
	}
	return []types.NamespacedName{labelled, {Namespace: object.GetNamespace(), Name: owner.Name}}
}

// groupsOfRevision are the groups of the set whose revision it is: one may wait for it.
func groupsOfRevision(o *lwscache.Observer) keysOf {
	groups := groupsOf(o, labelledSet)
	return func(ctx context.Context, object client.Object) []types.NamespacedName {
		if lwscache.OfStatefulSet(object) {
			return nil
		}
		return groups(ctx, object)
	}
}

// setOfPod returns the sets that a pod's event concerns: its own for a leader,
// and any that waits for that very pod to leave, be it by its label or its name.
func setOfPod(memory *lwscache.Memory) keysOf {
	return func(_ context.Context, object client.Object) []types.NamespacedName {
		labelled := labelledSet(object)
		parent, _ := identity.ParentAndOrdinal(object.GetName())
		named := types.NamespacedName{Namespace: object.GetNamespace(), Name: parent}
		var keys []types.NamespacedName
		if named == labelled || memory.Awaits(labelled, object.GetUID()) {
			keys = append(keys, labelled)
		}
		if named != labelled && memory.Awaits(named, object.GetUID()) {
			keys = append(keys, named)
		}
		return keys
	}
}

// groupOfPod returns the groups that a pod's name makes it a part of: its own
// for a leader, its parent's for a worker. A pod may be both, to different sets.
func groupOfPod(_ context.Context, object client.Object) []types.NamespacedName {
	parent, ordinal := identity.ParentAndOrdinal(object.GetName())
	if ordinal == identity.NoOrdinal {
		return nil
	}
	asWorker := types.NamespacedName{Namespace: object.GetNamespace(), Name: parent}
	if parent != object.GetLabels()[lwsv1.SetNameLabelKey] {
		return []types.NamespacedName{asWorker}
	}
	if _, group := identity.ParentAndOrdinal(parent); group == identity.NoOrdinal {
		return []types.NamespacedName{keyOf(object)}
	}
	return []types.NamespacedName{keyOf(object), asWorker}
}

// byOwnName is what has the object's own name: a set, or the group whose leader
// has it.
func byOwnName(_ context.Context, object client.Object) []types.NamespacedName {
	return []types.NamespacedName{keyOf(object)}
}

// groupsOf returns the groups of every leader that bears the name of the set in
// question.
func groupsOf(o *lwscache.Observer, set func(client.Object) types.NamespacedName) keysOf {
	return func(ctx context.Context, object client.Object) []types.NamespacedName {
		names, err := o.PodNames(ctx, set(object))
		if err != nil {
			return nil // the cache has the index or the process would not have started
		}
		keys := make([]types.NamespacedName, 0, len(names))
		for _, name := range names {
			keys = append(keys, types.NamespacedName{Namespace: object.GetNamespace(), Name: name})
		}
		return keys
	}
}

// groupsOfStatefulSet returns the group named like a StatefulSet and, for one
// that may be a leader StatefulSet, those of its leaders: a leader may be seen
// before the StatefulSet that makes it a member.
func groupsOfStatefulSet(o *lwscache.Observer) keysOf {
	leaders := groupsOf(o, keyOf)
	return func(ctx context.Context, object client.Object) []types.NamespacedName {
		keys := byOwnName(ctx, object)
		if labelledSet(object) == keyOf(object) {
			keys = append(keys, leaders(ctx, object)...)
		}
		return keys
	}
}

func always(_, _ client.Object) bool { return true }
func never(_, _ client.Object) bool  { return false }

// belonging tells whether an update changed who an object belongs to or whether
// it is on its way out.
func belonging(before, after client.Object) bool {
	return (before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) ||
		!reflect.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences())
}

// altered tells whether an update of a StatefulSet changed who it belongs to or, of
// one of workers, how many it is to have or what it bears. That of leaders is kept by
// its set.
func altered(before, after client.Object) bool {
	was, ok := before.(*appsv1.StatefulSet)
	is, ok2 := after.(*appsv1.StatefulSet)
	if !ok || !ok2 || belonging(before, after) {
		return true
	}
	return labelledSet(after) != keyOf(after) && (workload.PodsOf(was) != workload.PodsOf(is) || !maps.Equal(was.Labels, is.Labels))
}

// desire tells whether an update of a set changed anything but its status.
func desire(before, after client.Object) bool {
	return before.GetGeneration() != after.GetGeneration() || belonging(before, after) ||
		!reflect.DeepEqual(before.GetLabels(), after.GetLabels()) ||
		!reflect.DeepEqual(before.GetAnnotations(), after.GetAnnotations())
}

// told tells whether an update of a set changed its status.
func told(before, after client.Object) bool {
	was, ok := before.(*lwsv1.LeaderWorkerSet)
	is, ok2 := after.(*lwsv1.LeaderWorkerSet)
	return ok && ok2 && was.ResourceVersion != is.ResourceVersion && !reflect.DeepEqual(was.Status, is.Status)
}

// groupDesire tells whether an update of a set concerns groups that stand.
func groupDesire(before, after client.Object) bool {
	was, ok := before.(*lwsv1.LeaderWorkerSet)
	is, ok2 := after.(*lwsv1.LeaderWorkerSet)
	return ok && ok2 && (was.Spec.StartupPolicy != is.Spec.StartupPolicy || restart.Recreates(was) != restart.Recreates(is) ||
		!equality.Semantic.DeepEqual(was.Spec.NetworkConfig, is.Spec.NetworkConfig) ||
		lws.KeepsVolumes(was) != lws.KeepsVolumes(is) ||
		was.Annotations[lwsv1.ExclusiveKeyAnnotationKey] != is.Annotations[lwsv1.ExclusiveKeyAnnotationKey] ||
		!maps.Equal(was.Annotations, is.Annotations) && !reflect.DeepEqual(gang.Meant(was), gang.Meant(is)))
}

// standing tells whether an update of a StatefulSet changed what groups are
// judged by.
func standing(before, after client.Object) bool {
	was, ok := before.(*appsv1.StatefulSet)
	is, ok2 := after.(*appsv1.StatefulSet)
	if !ok || !ok2 || belonging(before, after) || was.Generation != is.Generation {
		return true
	}
	for _, key := range []string{lwsv1.ReplicasAnnotationKey, lws.AsFoundAnnotationKey} {
		if was.Annotations[key] != is.Annotations[key] {
			return true
		}
	}
	return !maps.Equal(was.Labels, is.Labels) || !reflect.DeepEqual(was.Status, is.Status)
}

// podProgress tells whether an update of a pod changed what groups are judged
// by: who it belongs to, where it runs, and whether it is ready.
func podProgress(before, after client.Object) bool {
	was, ok := before.(*corev1.Pod)
	is, ok2 := after.(*corev1.Pod)
	if !ok || !ok2 || belonging(before, after) || was.Spec.NodeName != is.Spec.NodeName {
		return true
	}
	return was.Status.Phase != is.Status.Phase || restarts(was) != restarts(is) || ready(was) != ready(is) || workload.Unschedulable(was) != workload.Unschedulable(is) || !reflect.DeepEqual(was.Labels, is.Labels)
}

// restarts is how often containers of a pod were restarted.
func restarts(pod *corev1.Pod) int32 {
	var sum int32
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			sum += statuses[i].RestartCount
		}
	}
	return sum
}

func ready(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			return pod.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}
