package lws

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// leaderWorkerIndex is the worker index of a leader, as labels spell it.
const leaderWorkerIndex = "0"

// leaderSelector is what the leader StatefulSet selects its pods by.
func leaderSelector(setName string) map[string]string {
	return map[string]string{lwsv1.SetNameLabelKey: setName, lwsv1.WorkerIndexLabelKey: leaderWorkerIndex}
}

// groupSelector is what a worker StatefulSet selects its pods by. It is taken
// from the leader; what a leader lacks, because no webhook saw it, follows from
// its name.
func groupSelector(setName string, g Group) map[string]string {
	return map[string]string{
		lwsv1.SetNameLabelKey:         setName,
		lwsv1.GroupIndexLabelKey:      labelOr(g.Leader, lwsv1.GroupIndexLabelKey, strconv.Itoa(g.Index)),
		lwsv1.GroupUniqueHashLabelKey: labelOr(g.Leader, lwsv1.GroupUniqueHashLabelKey, identity.GroupKey(g.Leader.Namespace, g.Leader.Name)),
	}
}

func labelOr(pod *corev1.Pod, key, otherwise string) string {
	if value := pod.Labels[key]; value != "" {
		return value
	}
	return otherwise
}

// merged returns the union of two maps; over wins. Neither is changed.
func merged(under, over map[string]string) map[string]string {
	union := make(map[string]string, len(under)+len(over))
	maps.Copy(union, under)
	maps.Copy(union, over)
	return union
}

// controlledBy is the owner reference that makes owner the controller.
func controlledBy(apiVersion string, owner identity.Ref) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{
		APIVersion:         apiVersion,
		Kind:               string(owner.Kind),
		Name:               owner.Name,
		UID:                owner.UID,
		Controller:         &yes,
		BlockOwnerDeletion: &yes,
	}}
}

// setRef is the incarnation of the set.
func setRef(set *lwsv1.LeaderWorkerSet) identity.Ref {
	return identity.RefOf(identity.KindLeaderWorkerSet, set)
}

func ownedBySet(set *lwsv1.LeaderWorkerSet) []metav1.OwnerReference {
	return controlledBy(lwsv1.GroupVersion.String(), setRef(set))
}

func ownedByLeader(leader *corev1.Pod) []metav1.OwnerReference {
	return controlledBy("v1", identity.RefOf(identity.KindPod, leader))
}
