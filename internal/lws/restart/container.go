package restart

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

const (
	// containersKept is how many failed containers of a group are kept: the first to end show
	// the cause, and the others follow them.
	containersKept = 8
	// terminationBytes bounds what is kept of a container's termination message, and unreadBytes
	// why its log was not read.
	terminationBytes, unreadBytes = 1 << 10, 256
	// LogBytes bounds what is kept of a container's log.
	LogBytes = 2 << 10
)

// withContainers adds the failed containers of the group to its failure.
func (g Group) withContainers(failure *Failure, now time.Time) *Failure {
	started := recordOfLeader(g.Set, g.Index, g.Leader.UID)
	all := containersOf(g.Leader, failure, now)
	for _, pod := range slices.Concat(g.Pods.Owned, g.Pods.Orphans, g.Pods.Foreign, g.Pods.Previous) {
		if g.counts(pod, started) > 0 {
			all = append(all, containersOf(pod, failure, now)...)
		}
	}
	slices.SortStableFunc(all, func(a, b lwsv1.ContainerFailure) int {
		return cmp.Or(a.At.Compare(b.At.Time), cmp.Compare(len(a.Pod), len(b.Pod)), cmp.Compare(a.Pod, b.Pod))
	})
	failure.Containers = all[:min(len(all), containersKept)]
	return failure
}

// containersOf returns the containers of a pod that failed together with the group, and the one
// that the failure names. Containers of a pod that is being deleted are stopped: they did not fail.
func containersOf(pod *corev1.Pod, failure *Failure, now time.Time) (failed []lwsv1.ContainerFailure) {
	for _, end := range endsOf(pod) {
		at := end.FinishedAt
		if at.IsZero() || at.After(now) {
			at = moment(now)
		}
		isCause := pod.Name == failure.Pod && end.container == failure.Container
		isStopped := pod.DeletionTimestamp != nil || end.ExitCode == 0
		if !isCause && (isStopped || failure.At.Sub(at.Time) > together) {
			continue
		}
		failed = append(failed, lwsv1.ContainerFailure{
			Pod: pod.Name, Name: end.container, ExitCode: end.ExitCode, At: at,
			Reason: word(end.Reason, ""), Message: lastBytes(end.Message, terminationBytes),
		})
	}
	return failed
}

// unreadYet stands in the place of a log until it is read: it stays if the leader is gone before.
const unreadYet = "the pods were gone first"

// AwaitLogs marks the logs of the failed containers as still to be read.
func (d *Decision) AwaitLogs() {
	d.Containers = slices.Clone(d.Containers)
	for i := range d.Containers {
		d.Containers[i].LogUnread = unreadYet
	}
}

// AwaitsLogs reports whether a log of a failed container is still to be read.
func (d *Decision) AwaitsLogs() bool {
	return slices.ContainsFunc(d.Containers, func(c lwsv1.ContainerFailure) bool { return c.LogUnread == unreadYet })
}

// Log is what was read of a container's log, or why it could not be read.
type Log struct{ Text, Unread string }

// WithLogs returns the decision with the ends of logs, one for each of its containers.
func (d *Decision) WithLogs(logs []Log) *Decision {
	with := *d
	with.Containers = slices.Clone(d.Containers)
	for i := range with.Containers[:min(len(logs), len(with.Containers))] {
		c := &with.Containers[i]
		c.LogUnread = ""
		if c.Log = lastBytes(logs[i].Text, LogBytes); c.Log == "" {
			c.LogUnread = cmp.Or(lastBytes(logs[i].Unread, unreadBytes), "the log is empty")
		}
	}
	return &with
}

// Ended reports whether a container failed in this pod, and whether the kubelet started it again
// since. Another pod of the same name has no such end.
func Ended(pod *corev1.Pod, failed lwsv1.ContainerFailure) (found, startedAgain bool) {
	for _, c := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		for _, end := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if c.Name == failed.Name && end != nil && end.ExitCode == failed.ExitCode &&
				(end.FinishedAt.IsZero() || end.FinishedAt.Equal(&failed.At)) {
				return true, end != c.State.Terminated
			}
		}
	}
	return false, false
}
