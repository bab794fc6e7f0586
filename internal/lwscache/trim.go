package lwscache

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

// trimStatefulSet drops what no decision reads: most of managedFields, and the pod template of
// workers, which is the same in each group.
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

// trimDeployment drops most of managedFields.
func trimDeployment(object any) (any, error) {
	if deployment, ok := object.(*appsv1.Deployment); ok {
		deployment.ManagedFields = trimManagedFields(deployment.ManagedFields)
	}
	return object, nil
}

// trimReplicaSet keeps the metadata: only owners are read.
func trimReplicaSet(object any) (any, error) {
	if replicaSet, ok := object.(*appsv1.ReplicaSet); ok {
		replicaSet.ManagedFields, replicaSet.Annotations = nil, nil
		replicaSet.Spec, replicaSet.Status = appsv1.ReplicaSetSpec{}, appsv1.ReplicaSetStatus{}
	}
	return object, nil
}

// trimManagedFields keeps the entry that a create left behind, without its fields: an apply must take it over.
func trimManagedFields(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	i := slices.IndexFunc(entries, lws.LeftByCreate)
	if i < 0 {
		return nil
	}
	left := entries[i]
	left.FieldsV1 = nil
	return []metav1.ManagedFieldsEntry{left}
}
