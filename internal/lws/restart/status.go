package restart

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws/workload"
)

const (
	// startedBytes bounds the records: the API server stores at most 1.5 MiB an object. It
	// is enough for some 3,100 groups of 8 pods.
	startedBytes = 480 << 10
	// detailedAtMost is how many groups keep the evidence of their failures, the latest,
	// and restartsAtMost how many have an entry at all.
	detailedAtMost, restartsAtMost = 64, 2500
	// textBytes bounds what the containers of all groups left, the latest failures first.
	textBytes = 128 << 10
)

// Status is the part of a set's status about restarts, as it is to be.
type Status struct {
	Started  []lwsv1.StartedGroup
	Restarts []lwsv1.GroupRestarts
	Since    *metav1.Time
	// IsNew is set when a group failed since the last write: the write is then urgent.
	IsNew bool
	// Failures are those that no group's reconcile reported.
	Failures []action.Failure
}

// Total returns the sum of the counts.
func (s *Status) Total() (total int32) {
	for i := range s.Restarts {
		total += s.Restarts[i].Count
	}
	return total
}

// Count adds entries of leaders whose groups failed: by the decision on a leader, or because it replaced another one
// without a decision: holdsNames holds for its group. Records of these groups are marked, and not counted again.
func (s *Status) Count(set *lwsv1.LeaderWorkerSet, leaders []*corev1.Pod, holdsNames bool, now time.Time) {
	var started []lwsv1.StartedGroup
	var restarts []lwsv1.GroupRestarts
	for _, leader := range leaders {
		index := workload.IndexOf(leader)
		decision := Of(set, leader)
		if decision != nil && s.isInherited(index, decision.Leader) {
			continue
		}
		if decision == nil {
			if leader.DeletionTimestamp != nil || !ReplacesUncounted(set, index, leader) {
				s.forget(index, leader)
				continue
			}
			decision = replaced(Group{Set: set, Index: index, Leader: leader, HoldsNames: holdsNames}, now)
			s.Failures = append(s.Failures, action.Failure{Code: CodeLeaderReplaced})
		}
		entry := s.entry(set, index, leader.Labels[lwsv1.RevisionKey], decision)
		if decision.Exhausted && IsRecovered(leader) {
			entry.Recreations = nil
		}
		restarts = append(restarts, entry)
		if record := startedAt(set, index); record != nil {
			started = append(started, counted(*record))
		}
	}
	s.Restarts = merge(s.Restarts, restarts, restartsIndex)
	s.Started = merge(s.Started, started, startedIndex)
}

// Expect marks the records of leaders that a rollout replaces, and takes the mark from the records of leaders that
// stay. The StatefulSet controller replaces a leader because of its revision: that is no failure, also
// where the spec changes back before the next leader exists.
func (s *Status) Expect(set *lwsv1.LeaderWorkerSet, leaders []*corev1.Pod, isReplaced func(index int) bool) {
	var changed []lwsv1.StartedGroup
	for _, leader := range leaders {
		index := workload.IndexOf(leader)
		started := find(s.Started, index, startedIndex)
		if started == nil || started.Leader != leader.UID || Of(set, leader) != nil {
			continue
		}
		as := uncounted(*started, leader)
		if isReplaced(index) {
			as = counted(*started)
		}
		if as != *started {
			changed = append(changed, as)
		}
	}
	s.Started = merge(s.Started, changed, startedIndex)
}

// entry is the entry of a group with a decision. Evidence is added once.
func (s *Status) entry(set *lwsv1.LeaderWorkerSet, index int, revision string, decision *Decision) lwsv1.GroupRestarts {
	entry := lwsv1.GroupRestarts{
		Index: int32(index), Leader: decision.Leader, Revision: revision,
		Count: decision.Count, FailedAt: decision.At, DueAt: decision.Due(set), Containers: decision.Containers,
		Recreations: decision.Recreations, HeldUntil: decision.HeldUntil,
	}
	last := Entry(set, index)
	if last != nil {
		entry.Failures = last.Failures
	}
	if last == nil || last.Leader != decision.Leader {
		failures := append(slices.Clone(entry.Failures), decision.PodFailure)
		entry.Failures = failures[max(0, len(failures)-failuresKept):]
		s.IsNew = true
	}
	s.IsNew = s.IsNew || last != nil && !last.HeldUntil.Equal(entry.HeldUntil)
	return entry
}

// replaced stands for the decision on a leader that left no evidence: it ended while no operator ran, or too soon, or a
// user deleted it. Another one leads the group.
func replaced(g Group, now time.Time) *Decision {
	failure := absent(CodeLeaderReplaced, g.Leader.Name, now)
	failure.Disrupted = true
	decision := g.Decide(failure, now)
	decision.Leader = startedAt(g.Set, g.Index).Leader
	return decision
}

// Started is the record of a group all of whose pods run. forgives reports whether the
// group may have failed before: one that is not forgiven is left to its own reconcile.
func Started(set *lwsv1.LeaderWorkerSet, index int, leader *corev1.Pod, workers []*corev1.Pod, forgives func(leader *corev1.Pod) bool) *lwsv1.StartedGroup {
	if !LacksRecord(set, index, leader) || Of(set, leader) != nil {
		return nil
	}
	r := running(set, leader, workers)
	if r == nil || r.restarted() && !forgives(leader) {
		return nil
	}
	return &lwsv1.StartedGroup{Index: int32(index), Leader: leader.UID, Pods: r.encode(leader.Labels[lwsv1.RevisionKey])}
}

// Record adds the records of groups that started. If there is no room for all, the first groups have theirs.
func (s *Status) Record(started []lwsv1.StartedGroup) {
	if len(started) == 0 {
		return
	}
	const keys = 95 // in JSON, of each entry
	room := startedBytes
	s.Started = slices.DeleteFunc(merge(s.Started, started, startedIndex), func(entry lwsv1.StartedGroup) bool {
		room -= len(entry.Pods) + keys
		return room < 0
	})
}

// Trim drops groups from an index on, and bounds the entries.
func (s *Status) Trim(end int32) {
	s.Started = below(s.Started, end, startedIndex)
	s.Restarts = below(s.Restarts, end, restartsIndex)
	s.bound()
}

// bound bounds the entries: the latest have their evidence.
func (s *Status) bound() {
	if len(s.Restarts) <= detailedAtMost && textOf(s.Restarts...) <= textBytes {
		return
	}
	latest := slices.SortedFunc(slices.Values(s.Restarts), func(a, b lwsv1.GroupRestarts) int {
		return cmp.Or(b.FailedAt.Compare(a.FailedAt.Time), cmp.Compare(a.Index, b.Index))
	})
	latest = latest[:min(len(latest), restartsAtMost)]
	for i, room := 0, textBytes; i < len(latest); i++ {
		if i >= detailedAtMost {
			latest[i].Failures = nil
		}
		if room -= textOf(latest[i]); room < 0 {
			latest[i].Containers = nil
		}
	}
	s.Restarts = merge(nil, latest, restartsIndex)
}

// textOf counts the bytes of the containers of groups.
func textOf(groups ...lwsv1.GroupRestarts) (sum int) {
	const keys = 160 // in JSON, of each container
	for _, group := range groups {
		for _, c := range group.Containers {
			sum += keys + len(c.Pod) + len(c.Name) + len(c.Reason) + len(c.Message) + len(c.Log) + len(c.LogUnread)
		}
	}
	return sum
}

// Owners says which Hash groups may have entries.
type Owners struct {
	// Living are the groups with a leader, and Kept those that are stopped for good.
	Living, Kept map[int]bool
	// Heirs are the groups that are scheduled now, in order.
	Heirs []Heir
	// Vacant is how many groups more may be scheduled.
	Vacant int
}

// Heir is a group that replaces another one of its revision.
type Heir struct {
	Index    int
	Revision string
}

// forget drops the recreations of a group whose leader runs another revision: they begin anew.
func (s *Status) forget(index int, leader *corev1.Pod) {
	entry := find(s.Restarts, index, restartsIndex)
	if entry == nil || entry.Recreations == nil || entry.Revision == leader.Labels[lwsv1.RevisionKey] {
		return
	}
	fresh := *entry
	fresh.Recreations = nil
	s.Restarts = merge(s.Restarts, []lwsv1.GroupRestarts{fresh}, restartsIndex)
}

// Inherit gives each heir without an entry the one with the highest count of its revision whose group is gone. Of the
// other entries whose groups are gone, those with the highest counts stay, as many as may still be inherited.
func (s *Status) Inherit(o Owners) {
	s.Started = slices.DeleteFunc(slices.Clone(s.Started), func(entry lwsv1.StartedGroup) bool { return !o.Living[int(entry.Index)] })
	var owned, unowned []lwsv1.GroupRestarts
	for _, entry := range s.Restarts {
		if index := int(entry.Index); o.Living[index] || o.Kept[index] {
			owned = append(owned, entry)
		} else {
			unowned = append(unowned, entry)
		}
	}
	slices.SortFunc(unowned, func(a, b lwsv1.GroupRestarts) int {
		return cmp.Or(cmp.Compare(ptr.Deref(b.Recreations, 0), ptr.Deref(a.Recreations, 0)), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Index, b.Index))
	})
	for _, heir := range o.Heirs {
		of := func(entry lwsv1.GroupRestarts) bool { return entry.Revision == heir.Revision }
		i := slices.IndexFunc(unowned, of)
		if i < 0 || slices.ContainsFunc(owned, func(entry lwsv1.GroupRestarts) bool { return int(entry.Index) == heir.Index }) {
			continue
		}
		entry := unowned[i]
		entry.Index = int32(heir.Index)
		owned, unowned = append(owned, entry), slices.Delete(unowned, i, i+1)
		s.IsNew = true
	}
	s.Restarts = merge(nil, slices.Concat(owned, unowned[:min(len(unowned), max(0, o.Vacant))]), restartsIndex)
	s.bound()
}

// isInherited reports whether another group has the entry of a leader by now.
func (s *Status) isInherited(index int, leader types.UID) bool {
	return slices.ContainsFunc(s.Restarts, func(entry lwsv1.GroupRestarts) bool {
		return entry.Leader == leader && int(entry.Index) != index
	})
}
