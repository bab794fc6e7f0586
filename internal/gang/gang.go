// Package gang says how Volcano, or Kubernetes, places the pods of a group together or not at all.
//
// It knows the PodGroup of a group, what ties a pod to it, and when a PodGroup says what it
// should. It refuses to know how objects are read and written, and when one is created.
package gang

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

const (
	// Volcano is the name of the scheduler in the configuration and in annotations.
	Volcano = "volcano"
	// PodGroupAnnotationKey on a pod names the PodGroup that it is placed with.
	PodGroupAnnotationKey = "scheduling.k8s.io/group-name"
)

// Kind is the kind of a PodGroup.
var Kind = schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"}

// IsWanted reports whether new groups of a set are placed as gangs. otherwise holds for sets that do not say.
func IsWanted(set metav1.Object, otherwise bool) bool {
	name := set.GetAnnotations()[lwsv1.GangSchedulerAnnotationKey]
	return name == Volcano || name == "" && otherwise
}

// NameOf is the name of the PodGroup of a pod's group. The revision is part of it: groups of
// two templates are never placed as one.
func NameOf(pod metav1.Object) string {
	labels := pod.GetLabels()
	return labels[lwsv1.SetNameLabelKey] + "-" + labels[lwsv1.GroupIndexLabelKey] + "-" + labels[lwsv1.RevisionKey]
}

// Tie ties a pod, or a template of pods, to a PodGroup.
func Tie(pod *metav1.ObjectMeta, podGroup string) {
	metav1.SetMetaDataAnnotation(pod, PodGroupAnnotationKey, podGroup)
}

// IsTied reports whether a pod is tied to the PodGroup of its group. A pod that its user tied
// to another PodGroup is not.
func IsTied(pod metav1.Object) bool {
	to := pod.GetAnnotations()[PodGroupAnnotationKey]
	return to != "" && to == NameOf(pod)
}
