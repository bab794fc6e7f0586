package render

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

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

// podsOf returns the owned pods of the group by rising index. A group without a leader has none.
func podsOf(g clilws.Group) []*corev1.Pod {
	if g.Leader == nil {
		return nil
	}
	pods := []*corev1.Pod{g.Leader}
	for _, pod := range g.Pods.Owned {
		if ordinal := workerIndex(pod); ordinal >= 1 && int32(ordinal) < sizeOf(g) {
			pods = append(pods, pod)
		}
	}
	slices.SortStableFunc(pods[1:], func(a, b *corev1.Pod) int { return workerIndex(a) - workerIndex(b) })
	return pods
}

func workerIndex(pod *corev1.Pod) int {
	_, ordinal := identity.ParentAndOrdinal(pod.Name)
	return ordinal
}

// fillPods sets the fields that are sums over the group's pods.
func fillPods(status *GroupStatus, g clilws.Group) {
	nodes := map[string]bool{}
	for _, pod := range podsOf(g) {
		if lws.PodReady(pod) {
			status.ReadyPods++
		}
		if pod.Spec.NodeName != "" {
			nodes[pod.Spec.NodeName] = true
		}
		status.Restarts += restarts(pod)
	}
	status.Nodes = slices.Sorted(maps.Keys(nodes))
	if g.Leader != nil {
		status.Revision = g.Leader.Labels[lwsv1.RevisionKey]
		status.CreatedAt = timeOf(g.Leader.CreationTimestamp.Time)
	}
}

func restarts(pod *corev1.Pod) int32 {
	var sum int32
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		sum += c.RestartCount
	}
	return sum
}

// complaint returns in brackets why the first container does not run, or is empty.
func complaint(pod *corev1.Pod) string {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
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

// nodesAtMost bounds how many nodes a row names.
const nodesAtMost = 3

// nodes names the first few nodes and counts the rest.
func nodes(names []string) string {
	var short []string
	for _, name := range names[:min(len(names), nodesAtMost)] {
		short = append(short, shortNode(name))
	}
	text := dash(strings.Join(short, ","))
	if more := len(names) - nodesAtMost; more > 0 {
		text += fmt.Sprintf(" +%d", more)
	}
	return text
}

// shortNode returns the name of a node without its domain.
func shortNode(name string) string {
	if _, err := netip.ParseAddr(name); err != nil {
		name, _, _ = strings.Cut(name, ".")
	}
	return name
}
