package admission

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// placeLeaderInSubgroup puts a leader into subgroup 0, unless subgroups are for
// workers only or the pod already knows better.
func placeLeaderInSubgroup(pod *corev1.Pod) error {
	if !dividesGroup(pod) || excludesLeader(pod) {
		return nil
	}
	if _, err := countAnnotation(pod, lwsv1.SubGroupSizeAnnotationKey); err != nil {
		return err
	}
	joinSubgroup(pod, pod.Name, 0)
	return nil
}

func placeWorkerInSubgroup(pod *corev1.Pod, groupSize, worker int) error {
	if !dividesGroup(pod) {
		return nil
	}
	part, err := countAnnotation(pod, lwsv1.SubGroupSizeAnnotationKey)
	if err != nil {
		return err
	}
	joinSubgroup(pod, pod.Annotations[lwsv1.LeaderPodNameAnnotationKey], subgroupOf(worker, groupSize, part))
	return nil
}

// dividesGroup reports whether the pod's group has subgroups and the pod does
// not know its own yet.
func dividesGroup(pod *corev1.Pod) bool {
	_, divided := pod.Annotations[lwsv1.SubGroupSizeAnnotationKey]
	return divided && pod.Labels[lwsv1.SubGroupIndexLabelKey] == ""
}

func excludesLeader(pod *corev1.Pod) bool {
	return pod.Annotations[lwsv1.SubGroupPolicyTypeAnnotationKey] == string(lwsv1.SubGroupPolicyTypeLeaderExcluded)
}

// subgroupOf is the subgroup of a worker. When the parts divide the group, the
// leader is one of part 0; when they only divide the group without its leader,
// the leader is left over.
func subgroupOf(worker, groupSize, part int) int {
	if leaderLeftOver(groupSize, part) {
		return (worker - 1) / part
	}
	return worker / part
}

func leaderLeftOver(groupSize, part int) bool {
	return groupSize%part != 0 && (groupSize-1)%part == 0
}

func joinSubgroup(pod *corev1.Pod, leaderName string, index int) {
	key := identity.SubgroupKey(leaderName, index)
	pod.Labels[lwsv1.SubGroupIndexLabelKey] = strconv.Itoa(index)
	pod.Labels[lwsv1.SubGroupUniqueHashLabelKey] = key
	// Where the whole group has its domain, its subgroups cannot have one each.
	topology := pod.Annotations[lwsv1.SubGroupExclusiveKeyAnnotationKey]
	if topology != "" && topology != pod.Annotations[lwsv1.ExclusiveKeyAnnotationKey] {
		SetExclusiveAffinities(pod, key, topology, lwsv1.SubGroupUniqueHashLabelKey)
	}
}
