package restart

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Failure returns why the group is to be recreated, or nil.
func (g Group) Failure(now time.Time) *Failure { return g.completed(g.failure(now), now) }

// FailureOfLeader returns how the leader failed, which is terminating, or nil.
func (g Group) FailureOfLeader(now time.Time) *Failure {
	started := recordOfLeader(g.Set, g.Index, g.Leader.UID)
	return g.completed(failureOf(g.Leader, started.restartsAt(0), true, now), now)
}

// completed adds to a failure what the other pods of the group show. The failure may be nil.
func (g Group) completed(failure *Failure, now time.Time) *Failure {
	if failure == nil {
		return nil
	}
	failure.Disrupted = failure.Disrupted || g.isDisrupted()
	return g.withContainers(failure, now)
}

// isDisrupted reports whether any pod of the group is being disrupted: the others fail because of it.
func (g Group) isDisrupted() bool {
	started := recordOfLeader(g.Set, g.Index, g.Leader.UID)
	return isDisrupted(g.Leader) || slices.ContainsFunc(slices.Concat(g.Pods.Owned, g.Pods.Orphans, g.Pods.Foreign, g.Pods.Previous), func(pod *corev1.Pod) bool {
		return isDisrupted(pod) && g.counts(pod, started) > 0
	})
}

// failure compares the pods of a group that has started with the record. Until then only pods that exist count.
//
// Terminating workers come first: containers of other pods fail when a worker is drained.
func (g Group) failure(now time.Time) *Failure {
	started := recordOfLeader(g.Set, g.Index, g.Leader.UID)
	if started == nil && ForgivesAnyStart(g.Set, g.Leader) {
		return nil
	}
	if len(started) > 1 && g.Workers.Own() == nil && g.Workers.Orphan() == nil {
		return absent(CodeWorkersetDeleted, g.workerName(1), now)
	}
	for _, pod := range g.Pods.Previous {
		if index := g.counts(pod, started); index > 0 {
			return failureOf(pod, started.restartsAt(index), true, now)
		}
	}
	if f := failureOf(g.Leader, started.restartsAt(0), false, now); f != nil {
		return f
	}
	return g.failureOfWorkers(started, now)
}

// failureOfWorkers returns how a worker failed that is not terminating, or nil.
func (g Group) failureOfWorkers(started record, now time.Time) *Failure {
	present := map[int]bool{0: true}
	for _, pod := range slices.Concat(g.Pods.Owned, g.Pods.Orphans, g.Pods.Foreign) {
		index := g.counts(pod, started)
		if f := failureOf(pod, started.restartsAt(index), false, now); f != nil && index > 0 {
			return f
		}
		present[index] = true
	}
	for index := range started {
		if !present[index] {
			return absent(CodePodGone, g.workerName(index), now)
		}
	}
	return nil
}

// workerName is the name of a worker. Another implementation names the StatefulSet of a group with a key in
// another way.
func (g Group) workerName(index int) string {
	name := workload.HostName(g.Leader)
	if sts := g.Workers.Own(); sts != nil {
		name = sts.Name
	}
	return identity.LeaderName(name, index)
}

// counts returns the index of a worker whose failure is one of the group, or 0. A group that started has the pods of
// its record, whatever owns them. Until then a worker belongs to the StatefulSet and has the revision of the leader.
// Workers beyond the size go when their StatefulSet is scaled back.
func (g Group) counts(pod *corev1.Pod, started record) int {
	_, index := identity.ParentAndOrdinal(pod.Name)
	if started != nil {
		if index < 1 || index >= len(started) || recordOf(pod).uid != started[index].uid {
			return 0
		}
		return index
	}
	sts := g.Workers.Own()
	if sts == nil || !metav1.IsControlledBy(pod, sts) || index >= int(workload.SizeOf(g.Leader, g.Set)) ||
		pod.Labels[lwsv1.RevisionKey] != g.Leader.Labels[lwsv1.RevisionKey] {
		return 0
	}
	return index
}

// failureOf returns how a pod failed, or nil. Every pod that is deleted ends in a terminal phase: of
// a terminating pod that says nothing unless the kubelet gave a reason.
func failureOf(pod *corev1.Pod, restarts uint64, leaving bool, now time.Time) *Failure {
	switch {
	case ended(pod) && (!leaving || pod.Status.Reason != ""):
		return evidence(CodePodEnded, pod, now)
	case Restarts(pod) > restarts:
		return evidence(CodePodRestarted, pod, now)
	case leaving:
		return evidence(CodePodDeleted, pod, now)
	}
	return nil
}
