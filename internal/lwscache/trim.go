package lwscache

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

// trimStatefulSet drops what no decision reads: who owns which field, but for what
// tells how to apply, and what the pods of workers are made of, of which there is
// one copy for each group.
func trimStatefulSet(object any) (any, error) {
	sts, ok := object.(*appsv1.StatefulSet)
	if !ok {
		return object, nil
	}
	sts.ManagedFields = trimManagedFields(sts.ManagedFields)
	if sts.Labels[lwsv1.SetNameLabelKey] != sts.Name {
		sts.Spec.Template.Spec = corev1.PodSpec{}
	}
	return sts, nil
}

// trimManagedFields leaves the entries that a create left to our applies, without
// their fields.
func trimManagedFields(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	i := slices.IndexFunc(entries, lws.LeftByCreate)
	if i < 0 {
		return nil
	}
	left := entries[i]
	left.FieldsV1 = nil
	return []metav1.ManagedFieldsEntry{left}
}
