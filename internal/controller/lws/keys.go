package lws

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/lwscache"
)

// keysOf returns the sets or groups that an object's event concerns. The key of a group is the
// name of its leader.
type keysOf func(client.Object) []types.NamespacedName

func keyOf(object client.Object) types.NamespacedName { return client.ObjectKeyFromObject(object) }

// beside returns a key in the namespace of an object.
func beside(object client.Object, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: name}
}

// labelledSet is the set that an object has the label of.
func labelledSet(object client.Object) types.NamespacedName {
	return beside(object, object.GetLabels()[lwsv1.SetNameLabelKey])
}

// byOwnName returns the set with the object's name, or the group whose leader has it.
func byOwnName(object client.Object) []types.NamespacedName {
	return []types.NamespacedName{keyOf(object)}
}

// setOf returns the set of an object's label.
func setOf(object client.Object) []types.NamespacedName {
	return []types.NamespacedName{labelledSet(object)}
}

// setsOf returns the set of an object's label, and the set that has the object's name.
func setsOf(object client.Object) []types.NamespacedName {
	labelled, own := labelledSet(object), keyOf(object)
	if labelled == own || labelled.Name == "" {
		return []types.NamespacedName{own}
	}
	return []types.NamespacedName{labelled, own}
}

// setOfRevision returns the set of a revision's label, and the set that owns it. A StatefulSet's
// own history has that label, too, and concerns no set: as many come as a set has groups.
func setOfRevision(object client.Object) []types.NamespacedName {
	if lwscache.OfStatefulSet(object) {
		return nil
	}
	return withOwner(object, labelledSet(object), identity.KindLeaderWorkerSet)
}

// withOwner returns the key of an object's labels, and its controller if that has the kind.
func withOwner(object client.Object, labelled types.NamespacedName, kind identity.Kind) []types.NamespacedName {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != string(kind) || owner.Name == labelled.Name {
		return []types.NamespacedName{labelled}
	}
	return []types.NamespacedName{labelled, beside(object, owner.Name)}
}

// setOfPod returns the sets that a pod's event concerns: its own for a leader, and any that waits
// for that very pod to be gone, by its label or its name.
func setOfPod(memory *lwscache.Memory) keysOf {
	return func(object client.Object) []types.NamespacedName {
		labelled := labelledSet(object)
		if g := workload.Of(object); g.HasKey() {
			if g.LeaderName == object.GetName() || object.GetDeletionTimestamp() != nil { // a group that goes makes room
				return []types.NamespacedName{labelled}
			}
			return nil
		}
		parent, _ := identity.ParentAndOrdinal(object.GetName())
		named := beside(object, parent)
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

// groupOfPod returns the groups that a pod belongs to: its own for a leader, its parent's for a
// worker. A pod may be both, to different sets.
func groupOfPod(object client.Object) []types.NamespacedName {
	parent := beside(object, workload.ParentName(object))
	_, group := identity.ParentAndOrdinal(parent.Name)
	switch {
	case parent.Name == "":
		return nil
	case parent != labelledSet(object):
		return []types.NamespacedName{parent}
	case group == identity.NoOrdinal:
		return byOwnName(object)
	}
	return []types.NamespacedName{keyOf(object), parent}
}

// groupsOf returns the groups of every leader with the name of a set.
func groupsOf(o *lwscache.Observer, set func(client.Object) types.NamespacedName) keysOf {
	return func(object client.Object) []types.NamespacedName { return groupsUnder(o, set(object)) }
}

func groupsUnder(o *lwscache.Observer, set types.NamespacedName) []types.NamespacedName {
	return groupsWhere(o, set, func(*corev1.Pod) bool { return true })
}

// groupsWhere returns the groups of the leaders of a set that match.
func groupsWhere(o *lwscache.Observer, set types.NamespacedName, matches func(leader *corev1.Pod) bool) (keys []types.NamespacedName) {
	pods, err := o.Pods(context.Background(), set)
	if err != nil {
		return nil // the cache has the index or the process would not have started
	}
	for _, pod := range pods {
		if matches(pod) {
			keys = append(keys, keyOf(pod))
		}
	}
	return keys
}

// everyGroup returns the groups of all leaders of all sets.
func everyGroup(o *lwscache.Observer) (keys []types.NamespacedName) {
	for _, set := range o.SetNames(context.Background()) {
		keys = append(keys, groupsUnder(o, set)...)
	}
	return keys
}

// groupsOfRevision returns the groups of the set whose revision it is: one may wait for it.
func groupsOfRevision(o *lwscache.Observer) keysOf {
	return func(object client.Object) []types.NamespacedName {
		if lwscache.OfStatefulSet(object) {
			return nil
		}
		return groupsUnder(o, labelledSet(object))
	}
}

// groupsOfStatefulSet returns the group named like a StatefulSet and, if it may be a leader
// StatefulSet, those of its leaders: a leader may be read before the StatefulSet that owns it.
func groupsOfStatefulSet(o *lwscache.Observer) keysOf {
	return func(object client.Object) []types.NamespacedName {
		keys := withOwner(object, keyOf(object), identity.KindPod)
		if labelledSet(object) == keyOf(object) {
			keys = append(keys, groupsUnder(o, keyOf(object))...)
		}
		return keys
	}
}

// groupOfService returns the group whose leader owns a Service, or has its name.
func groupOfService(object client.Object) []types.NamespacedName {
	return withOwner(object, keyOf(object), identity.KindPod)
}

// groupOfVolume returns the group that a worker's PVC belongs to.
func groupOfVolume(object client.Object) []types.NamespacedName {
	if object.GetLabels()[lwsv1.GroupIndexLabelKey] == "" {
		return nil
	}
	return []types.NamespacedName{labelledGroup(object)}
}

// labelledGroup is the group of an object's labels.
func labelledGroup(object client.Object) types.NamespacedName {
	return beside(object, labelledSet(object).Name+"-"+object.GetLabels()[lwsv1.GroupIndexLabelKey])
}

// groupsOfPodGroup is groupOfGang, also in a Hash set: the label has the key of the leader.
func groupsOfPodGroup(o *lwscache.Observer, object client.Object) []types.NamespacedName {
	label := object.GetLabels()[lwsv1.GroupIndexLabelKey]
	if _, err := strconv.Atoi(label); label == "" || err == nil {
		return groupOfGang(object)
	}
	return groupsWhere(o, labelledSet(object), func(leader *corev1.Pod) bool { return leader.Labels[lwsv1.GroupIndexLabelKey] == label })
}

// groupOfGang returns the group whose leader owns a gang scheduler's object, and the group of its
// labels.
func groupOfGang(object client.Object) []types.NamespacedName {
	if object.GetLabels()[lwsv1.GroupIndexLabelKey] == "" { // it is the set's
		return nil
	}
	return withOwner(object, labelledGroup(object), identity.KindPod)
}
