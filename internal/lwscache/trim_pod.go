package lwscache

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/restart"
)

// trimPod drops what no decision reads of the fields that keptFields decodes.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	maps.DeleteFunc(pod.Annotations, func(key, _ string) bool {
		return !strings.HasPrefix(key, ownPrefix) && key != gang.PodGroupAnnotationKey && key != restart.AnnotationKey && key != corev1.PodDeletionCost
	})
	maps.DeleteFunc(pod.Labels, func(key, _ string) bool {
		return !strings.HasPrefix(key, ownPrefix) && key != appsv1.ControllerRevisionHashLabelKey
	})
	pod.Spec.Containers = withResources(pod.Spec.Containers)
	pod.Spec.InitContainers = withResources(pod.Spec.InitContainers)
	pod.Status.Conditions = trimConditions(pod.Status.Conditions)
	return pod, nil
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
