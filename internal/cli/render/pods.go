package render

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// sizeOf returns the number of pods of the complete group.
func sizeOf(g clilws.Group) int32 {
	if g.Leader == nil {
		return workload.Size(g.Set)
	}
	return workload.SizeOf(g.Leader, g.Set)
}

// podsOf returns the owned pods of the group by index, nil where one is missing. A group without a leader
// has none.
func podsOf(g clilws.Group) []*corev1.Pod {
	if g.Leader == nil {
		return nil
	}
	pods := make([]*corev1.Pod, max(1, sizeOf(g)))
	pods[0] = g.Leader
	for _, pod := range g.Pods.Owned {
		if _, index := identity.ParentAndOrdinal(pod.Name); index >= 1 && index < len(pods) {
			pods[index] = pod
		}
	}
	return pods
}

// fillPods sets the fields that are sums over the group's pods.
func fillPods(status *GroupStatus, g clilws.Group) {
	for _, pod := range podsOf(g) {
		if pod == nil {
			continue
		}
		if lws.PodReady(pod) {
			status.ReadyPods++
		}
		if node := pod.Spec.NodeName; node != "" && !slices.Contains(status.Nodes, node) {
			status.Nodes = append(status.Nodes, node)
		}
		for _, c := range containers(pod) {
			status.Restarts += c.RestartCount
		}
	}
	slices.Sort(status.Nodes)
	if g.Leader != nil {
		status.Revision = g.Leader.Labels[lwsv1.RevisionKey]
		status.CreatedAt = timeOf(g.Leader.CreationTimestamp.Time)
	}
}

func containers(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// complaint returns in brackets why the first container does not run, or is empty.
func complaint(pod *corev1.Pod) string {
	for _, c := range containers(pod) {
		waiting, ended := c.State.Waiting, c.State.Terminated
		switch {
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing" && waiting.Reason != "ContainerCreating":
			return " (" + waiting.Reason + ")"
		case ended != nil && ended.ExitCode != 0:
			return " (" + ended.Reason + ")"
		}
	}
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return " (" + string(pod.Status.Phase) + ")"
	}
	return ""
}
