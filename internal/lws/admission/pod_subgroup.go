package admission

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// placeInSubgroup puts a pod into its subgroup, unless it knows that already. A leader has the index 0, and no subgroup
// where these are for workers only. The keys of subgroups are made from the key of the group, or else from the name of
// its leader.
func placeInSubgroup(pod *corev1.Pod, leader string, groupSize, index int) error {
	_, divided := pod.Annotations[lwsv1.SubGroupSizeAnnotationKey]
	if !divided || pod.Labels[lwsv1.SubGroupIndexLabelKey] != "" || IsLeader(pod) && excludesLeader(pod) {
		return nil
	}
	part, err := countAnnotation(pod, lwsv1.SubGroupSizeAnnotationKey)
	if err != nil {
		return err
	}
	joinSubgroup(pod, cmp.Or(workload.HashKey(pod), leader), subgroupOf(index, groupSize, part))
	return nil
}

func excludesLeader(pod *corev1.Pod) bool {
	return pod.Annotations[lwsv1.SubGroupPolicyTypeAnnotationKey] == string(lwsv1.SubGroupPolicyTypeLeaderExcluded)
}

// subgroupOf is the subgroup of a pod. When the parts divide the group, the leader is one of part 0; when they only
// divide the group without its leader, it joins part 0 on top.
func subgroupOf(index, groupSize, part int) int {
	if index > 0 && leaderLeftOver(groupSize, part) {
		index--
	}
	return index / part
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

// SetExclusiveAffinities makes the pod share a topology domain with the pods whose label podAffinityKey has the value
// uniqueKey, and with no others that have that label. topologyKey names the node label whose values are the domains.
//
// A pod that already has both a required affinity and a required anti-affinity for that topology is left alone: it was
// done before, or the user knows better. Otherwise the terms come on top of what is there.
func SetExclusiveAffinities(pod *corev1.Pod, uniqueKey, topologyKey, podAffinityKey string) {
	affinity := cmp.Or(pod.Spec.Affinity, &corev1.Affinity{})
	pod.Spec.Affinity = affinity
	affinity.PodAffinity = cmp.Or(affinity.PodAffinity, &corev1.PodAffinity{})
	affinity.PodAntiAffinity = cmp.Or(affinity.PodAntiAffinity, &corev1.PodAntiAffinity{})
	together := &affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	apart := &affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if hasTerm(*together, topologyKey) && hasTerm(*apart, topologyKey) {
		return
	}
	*together = append(*together, affinityTerm(topologyKey,
		metav1.LabelSelectorRequirement{Key: podAffinityKey, Operator: metav1.LabelSelectorOpIn, Values: []string{uniqueKey}},
	))
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

func hasTerm(terms []corev1.PodAffinityTerm, topologyKey string) bool {
	return slices.ContainsFunc(terms, func(term corev1.PodAffinityTerm) bool { return term.TopologyKey == topologyKey })
}
