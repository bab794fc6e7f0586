package restart

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Failure returns why the group is to be recreated, or nil. A group that has started is compared with its record. Until
// then only pods that exist count. A request of a user precedes other failures.
func (g Group) Failure(now time.Time) *Failure {
	started := recordOfLeader(g.Set, g.Index, g.Leader)
	if IsRequested(g.Leader) {
		return requested(g.Leader, now).of(g.members(started), now)
	}
	if started == nil && ForgivesAnyStart(g.Set, g.Leader) {
		return nil
	}
	members, present := g.members(started), map[int]bool{}
	if len(started) > 1 && g.Workers.Own() == nil && g.Workers.Orphan() == nil {
		return absent(CodeWorkersetDeleted, g.workerName(1), now).of(members, now)
	}
	for _, m := range members {
		if failure := m.failure(now); failure != nil {
			return failure.of(members, now)
		}
		present[m.index] = true
	}
	for index := range started {
		if !present[index] {
			return absent(CodePodGone, g.workerName(index), now).of(members, now)
		}
	}
	return nil
}

// FailureOfLeader returns how the leader failed, which is terminating.
func (g Group) FailureOfLeader(now time.Time) *Failure {
	started := recordOfLeader(g.Set, g.Index, g.Leader)
	if IsRequested(g.Leader) {
		return requested(g.Leader, now).of(g.members(started), now)
	}
	leader := member{g.Leader, 0, started.restartsAt(0), true}
	return leader.failure(now).of(g.members(started), now)
}

// of adds what all pods of the group show: the others fail because one is disrupted, and the first containers to end
// show the cause.
func (f *Failure) of(members []member, now time.Time) *Failure {
	for _, m := range members {
		f.Disrupted = f.Disrupted || disruption(m.Pod) != ""
		f.isDrained = f.isDrained || disruption(m.Pod) == reasonEvicted
		f.Containers = append(f.Containers, containersOf(m.Pod, f, now)...)
	}
	slices.SortStableFunc(f.Containers, func(a, b lwsv1.ContainerFailure) int {
		return cmp.Or(a.At.Compare(b.At.Time), cmp.Compare(len(a.Pod), len(b.Pod)), cmp.Compare(a.Pod, b.Pod))
	})
	f.Containers = f.Containers[:min(len(f.Containers), containersKept)]
	if f.Code == CodePodDeleted && f.Disruption == reasonEvicted {
		f.Code = CodePodEvicted
	}
	return f
}

// workerName is the name of a worker. Another implementation names the StatefulSet of a Hash group in
// another way.
func (g Group) workerName(index int) string {
	name := workload.HostName(g.Leader)
	if sts := g.Workers.Own(); sts != nil {
		name = sts.Name
	}
	return identity.LeaderName(name, index)
}

// member is a pod whose failure is one of its group.
type member struct {
	*corev1.Pod
	index int
	// restarts is how often its containers had restarted when the group started.
	restarts uint64
	// isLeaving is set if the pod is terminating, or its StatefulSet is.
	isLeaving bool
}

// members returns the leader and the workers that count. Terminating workers come first: containers of other pods fail
// when a worker is drained.
func (g Group) members(started record) (all []member) {
	add := func(isLeaving bool, pods ...*corev1.Pod) {
		for _, pod := range pods {
			if index := g.counts(pod, started); index > 0 {
				all = append(all, member{pod, index, started.restartsAt(index), isLeaving})
			}
		}
	}
	add(true, g.Pods.Previous...)
	all = append(all, member{g.Leader, 0, started.restartsAt(0), false})
	add(false, slices.Concat(g.Pods.Owned, g.Pods.Orphans, g.Pods.Foreign)...)
	return all
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

// IsUnrecorded reports whether a worker was none of the group when it started, or the group has not started.
func (g Group) IsUnrecorded(worker *corev1.Pod) bool {
	started := recordOfLeader(g.Set, g.Index, g.Leader)
	return started == nil || g.counts(worker, started) == 0
}

// failure returns how a pod failed, or nil. Every pod that is deleted ends in a terminal phase: of
// a terminating pod that says nothing unless the kubelet gave a reason.
func (m member) failure(now time.Time) *Failure {
	switch {
	case workload.HasEnded(m.Pod) && (!m.isLeaving || m.Status.Reason != ""):
		return evidence(CodePodEnded, m.Pod, now)
	case Restarts(m.Pod) > m.restarts:
		return evidence(CodePodRestarted, m.Pod, now)
	case m.isLeaving:
		return evidence(CodePodDeleted, m.Pod, now)
	}
	return nil
}
