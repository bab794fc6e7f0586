package admission

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
	for _, term := range terms {
		if term.TopologyKey == topologyKey {
			return true
		}
	}
	return false
}
