package admission

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
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
	joinSubgroup(pod, subgroupsOf(pod, pod.Name), 0)
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
	joinSubgroup(pod, subgroupsOf(pod, pod.Annotations[lwsv1.LeaderPodNameAnnotationKey]), subgroupOf(worker, groupSize, part))
	return nil
}

// subgroupsOf is what the keys of a group's subgroups are made from: the key of the group, or else
// the name of its leader.
func subgroupsOf(pod *corev1.Pod, leaderName string) string {
	if workload.HasKey(pod) {
		return pod.Labels[lwsv1.GroupUniqueHashLabelKey]
	}
	return leaderName
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

func joinSubgroup(pod *corev1.Pod, from string, index int) {
	key := identity.SubgroupKey(from, index)
	pod.Labels[lwsv1.SubGroupIndexLabelKey] = strconv.Itoa(index)
	pod.Labels[lwsv1.SubGroupUniqueHashLabelKey] = key
	// Where the whole group has its domain, its subgroups cannot have one each.
	topology := pod.Annotations[lwsv1.SubGroupExclusiveKeyAnnotationKey]
	if topology != "" && topology != pod.Annotations[lwsv1.ExclusiveKeyAnnotationKey] {
		SetExclusiveAffinities(pod, key, topology, lwsv1.SubGroupUniqueHashLabelKey)
	}
}

// SetExclusiveAffinities makes the pod share a topology domain with the pods
// whose label podAffinityKey has the value uniqueKey, and with no others that
// have that label. topologyKey names the node label whose values are the
// domains.
//
// A pod that already has both a required affinity and a required anti-affinity
// for that topology is left alone: it was done before, or the user knows better.
// Otherwise the terms come on top of what is there.
func SetExclusiveAffinities(pod *corev1.Pod, uniqueKey, topologyKey, podAffinityKey string) {
	if hasExclusiveAffinities(pod.Spec.Affinity, topologyKey) {
		return
	}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.PodAffinity == nil {
		pod.Spec.Affinity.PodAffinity = &corev1.PodAffinity{}
	}
	if pod.Spec.Affinity.PodAntiAffinity == nil {
		pod.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	together := &pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	*together = append(*together, affinityTerm(topologyKey,
		metav1.LabelSelectorRequirement{Key: podAffinityKey, Operator: metav1.LabelSelectorOpIn, Values: []string{uniqueKey}},
	))
	apart := &pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	*apart = append(*apart, affinityTerm(topologyKey,
		metav1.LabelSelectorRequirement{Key: podAffinityKey, Operator: metav1.LabelSelectorOpExists},
		metav1.LabelSelectorRequirement{Key: podAffinityKey, Operator: metav1.LabelSelectorOpNotIn, Values: []string{uniqueKey}},
	))
}

func affinityTerm(topologyKey string, requirements ...metav1.LabelSelectorRequirement) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{
		LabelSelector: &metav1.LabelSelector{MatchExpressions: requirements},
		TopologyKey:   topologyKey,
	}
}

func hasExclusiveAffinities(affinity *corev1.Affinity, topologyKey string) bool {
	if affinity == nil || affinity.PodAffinity == nil || affinity.PodAntiAffinity == nil {
		return false
	}
	return hasTerm(affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, topologyKey) &&
		hasTerm(affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, topologyKey)
}

func hasTerm(terms []corev1.PodAffinityTerm, topologyKey string) bool {
	return slices.ContainsFunc(terms, func(term corev1.PodAffinityTerm) bool { return term.TopologyKey == topologyKey })
}
