package lws

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Indices is how many indices a group that is wanted may have. Hash groups have no index before they exist.
func (s Survey) Indices() int {
	if workload.HasHashIdentity(s.Set.Set) {
		return 0
	}
	return int(workload.Replicas(s.Set.Set))
}

// Absent returns a group that has no object.
func (s Survey) Absent(index int) (g Group) {
	g.Set, g.Index, g.LeaderName = s.Set.Set, index, identity.LeaderName(s.Set.Set.Name, index)
	return g
}

// Size is the number of pods of the complete group.
func (g Group) Size() int32 {
	if g.Leader == nil {
		return workload.Size(g.Set)
	}
	return workload.SizeOf(g.Leader, g.Set)
}

// WorkersName is the name of the group's StatefulSet.
func (g Group) WorkersName() string {
	if sts := g.Workers.Own(); sts != nil {
		return sts.Name
	}
	if g.Leader == nil {
		return g.LeaderName
	}
	return workload.HostName(g.Leader)
}

// Members are the owned pods of the group by rising index. A group without a leader has none.
func (g Group) Members() []*corev1.Pod {
	if g.Leader == nil {
		return nil
	}
	ordinal := func(pod *corev1.Pod) int { return identity.Ordinal(pod.Name) }
	isExtra := func(pod *corev1.Pod) bool { return ordinal(pod) < 1 || ordinal(pod) >= int(g.Size()) }
	workers := slices.DeleteFunc(slices.Clone(g.Pods.Owned), isExtra)
	slices.SortFunc(workers, func(a, b *corev1.Pod) int { return ordinal(a) - ordinal(b) })
	return append([]*corev1.Pod{g.Leader}, workers...)
}

// Containers returns the status of all containers of a pod, init containers first.
func Containers(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// Complaint returns in brackets why the first container does not run, or is empty.
func Complaint(pod *corev1.Pod) string {
	for _, c := range Containers(pod) {
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
