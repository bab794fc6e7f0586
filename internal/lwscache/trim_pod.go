package lwscache

import (
	"maps"
	"slices"
	"strings"
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/restart"
)

// trimPod drops what no decision reads, which is most of a pod.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	maps.DeleteFunc(pod.Annotations, func(key, _ string) bool {
		return !strings.HasPrefix(key, ownPrefix) && key != gang.PodGroupAnnotationKey && key != restart.AnnotationKey
	})
	maps.DeleteFunc(pod.Labels, func(key, _ string) bool {
		return !strings.HasPrefix(key, ownPrefix) && key != appsv1.ControllerRevisionHashLabelKey
	})
	pod.Spec = corev1.PodSpec{
		NodeName:       one(pod.Spec.NodeName),
		Containers:     trimContainers(pod.Spec.Containers),
		InitContainers: trimContainers(pod.Spec.InitContainers),
	}
	pod.Status = trimPodStatus(&pod.Status)
	internMetadata(&pod.ObjectMeta)
	return pod, nil
}

// trimContainers keeps the containers with resources, and those resources.
func trimContainers(containers []corev1.Container) []corev1.Container {
	var trimmed []corev1.Container
	for i := range containers {
		if c := &containers[i]; len(c.Resources.Limits)+len(c.Resources.Requests) > 0 {
			trimmed = append(trimmed, corev1.Container{Name: one(c.Name), Image: one(c.Image), Resources: c.Resources})
		}
	}
	return trimmed
}

// trimPodStatus keeps phase, conditions and container states, without addresses and image IDs.
func trimPodStatus(status *corev1.PodStatus) corev1.PodStatus {
	return corev1.PodStatus{
		ObservedGeneration:    status.ObservedGeneration,
		Phase:                 corev1.PodPhase(one(string(status.Phase))),
		Reason:                status.Reason,
		Message:               status.Message,
		Conditions:            trimConditions(status.Conditions),
		InitContainerStatuses: trimContainerStatuses(status.InitContainerStatuses),
		ContainerStatuses:     trimContainerStatuses(status.ContainerStatuses),
	}
}

// trimConditions keeps the conditions that decisions read. Of a ready pod, those on the way to
// readiness are dropped.
func trimConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	isReady := slices.ContainsFunc(conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	var trimmed []corev1.PodCondition
	for _, c := range conditions {
		switch c.Type {
		case corev1.PodReady, corev1.DisruptionTarget:
		default:
			if isReady {
				continue
			}
		}
		c.Type, c.Status = corev1.PodConditionType(one(string(c.Type))), corev1.ConditionStatus(one(string(c.Status)))
		c.Reason = one(c.Reason)
		trimmed = append(trimmed, c)
	}
	return slices.Clip(trimmed)
}

func trimContainerStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var trimmed []corev1.ContainerStatus
	for i := range statuses {
		s := &statuses[i]
		trimmed = append(trimmed, corev1.ContainerStatus{
			Name: one(s.Name), State: s.State, LastTerminationState: s.LastTerminationState,
			Ready: s.Ready, RestartCount: s.RestartCount, Started: s.Started,
		})
	}
	return slices.Clip(trimmed)
}

// internMetadata makes pods share equal strings: most labels of a group's pods are equal.
func internMetadata(meta *metav1.ObjectMeta) {
	meta.Namespace, meta.GenerateName = one(meta.Namespace), one(meta.GenerateName)
	meta.Labels, meta.Annotations = internMap(meta.Labels), internMap(meta.Annotations)
	for i := range meta.OwnerReferences {
		owner := &meta.OwnerReferences[i]
		owner.APIVersion, owner.Kind, owner.Name = one(owner.APIVersion), one(owner.Kind), one(owner.Name)
	}
}

func internMap(texts map[string]string) map[string]string {
	if len(texts) == 0 {
		return nil
	}
	interned := make(map[string]string, len(texts))
	for key, value := range texts {
		interned[one(key)] = one(value)
	}
	return interned
}

// one returns an equal string that is in memory once.
func one(text string) string { return unique.Make(text).Value() }
