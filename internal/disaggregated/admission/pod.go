package admission

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
)

// variables are what the containers of a pod are told, each with the label that says it and the value without one: pods
// from before there were slices are of slice 0.
var variables = []struct{ name, label, otherwise string }{
	{"DISAGGREGATEDSET_NAME", dsv1.SetNameLabelKey, ""},
	{"DISAGGREGATEDSET_ROLE", dsv1.RoleLabelKey, ""},
	{"DISAGGREGATEDSET_SLICE", dsv1.SliceLabelKey, "0"},
	{"DISAGGREGATEDSET_REVISION", dsv1.RevisionLabelKey, ""},
}

// MutatePod tells the containers of a pod which part of a DisaggregatedSet it is, in place, and leaves every other pod as
// it is. Variables of these names are replaced, and the user's can refer to ours. Done twice it changes nothing.
func MutatePod(pod *corev1.Pod) error {
	if _, isOurs := pod.Labels[dsv1.SetNameLabelKey]; !isOurs {
		return nil
	}
	var ours []corev1.EnvVar
	for _, variable := range variables {
		value := cmp.Or(pod.Labels[variable.label], variable.otherwise)
		if len(value) > validation.LabelValueMaxLength { // the API server refuses it, after it is in every container
			return fmt.Errorf("label %s of a pod has %d characters, at most 63 are allowed", variable.label, len(value))
		}
		ours = append(ours, corev1.EnvVar{Name: variable.name, Value: value})
	}
	isOurs := func(theirs corev1.EnvVar) bool {
		return slices.ContainsFunc(ours, func(o corev1.EnvVar) bool { return o.Name == theirs.Name })
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			containers[i].Env = slices.Concat(ours, slices.DeleteFunc(slices.Clone(containers[i].Env), isOurs))
		}
	}
	return nil
}
