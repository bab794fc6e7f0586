package lwscache

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/volumes"
)

// trims changes the objects of a type before the cache keeps them.
func trims[T any](trim func(T)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if object, ok := object.(T); ok {
			trim(object)
		}
		return object, nil
	}
}

// trimStatefulSet drops what no decision reads: most of managedFields, and the pod template of
// workers, which is the same in each group.
func trimStatefulSet(sts *appsv1.StatefulSet) {
	sts.ManagedFields = trimManagedFields(sts.ManagedFields)
	if sts.Labels[lwsv1.SetNameLabelKey] != sts.Name {
		sts.Spec.Template.Spec = corev1.PodSpec{}
	}
}

// trimReplicaSet keeps the metadata: only owners are read.
func trimReplicaSet(replicaSet *appsv1.ReplicaSet) {
	replicaSet.ManagedFields, replicaSet.Annotations = nil, nil
	replicaSet.Spec, replicaSet.Status = appsv1.ReplicaSetSpec{}, appsv1.ReplicaSetStatus{}
}

// trimVolume keeps a PVC's metadata, and of its annotations the one that names the set that
// deletes it when its group is scaled away.
func trimVolume(volume *volumes.PVC) {
	volume.ManagedFields = nil
	maps.DeleteFunc(volume.Annotations, func(key, _ string) bool { return key != volumes.WhenScaledAnnotationKey })
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

// trimPod drops what no decision reads of the fields that keptFields decodes.
func trimPod(pod *corev1.Pod) {
	maps.DeleteFunc(pod.Annotations, func(key, _ string) bool {
		return !strings.HasPrefix(key, ownPrefix) && !slices.Contains([]string{gang.PodGroupAnnotationKey, restart.AnnotationKey, lwsv1.RecreateAnnotationKey, corev1.PodDeletionCost}, key)
	})
	maps.DeleteFunc(pod.Labels, func(key, _ string) bool {
		return !strings.HasPrefix(key, ownPrefix) && !strings.HasPrefix(key, dsv1.GroupVersion.Group+"/") && key != dsv1.ReadyForTrafficLabelKey && key != appsv1.ControllerRevisionHashLabelKey
	})
	pod.Spec.Containers = withResources(pod.Spec.Containers)
	pod.Spec.InitContainers = withResources(pod.Spec.InitContainers)
	pod.Status.Conditions = trimConditions(pod.Status.Conditions)
}

// withResources keeps the containers with resources.
func withResources(containers []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for _, c := range containers {
		if len(c.Resources.Limits)+len(c.Resources.Requests) > 0 {
			kept = append(kept, c)
		}
	}
	return kept
}

// trimConditions keeps the conditions that decisions read. Of a ready pod, those on the way to readiness are dropped.
func trimConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	isReady := slices.ContainsFunc(conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	var trimmed []corev1.PodCondition
	for _, c := range conditions {
		switch c.Type {
		case corev1.PodReady, corev1.DisruptionTarget, restart.TerminationTarget, lwsv1.GroupReadyCondition:
		default:
			if isReady {
				continue
			}
		}
		trimmed = append(trimmed, c)
	}
	return slices.Clip(trimmed)
}
