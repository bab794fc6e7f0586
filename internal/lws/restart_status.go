package lws

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

const (
	// startedBytes bounds the records: the API server stores at most 1.5 MiB an object. It
	// is enough for some 3,500 groups of 8 pods.
	startedBytes = 512 << 10
	// detailedAtMost is how many groups keep the evidence of their failures, the latest,
	// and restartsAtMost how many have an entry at all.
	detailedAtMost, restartsAtMost = 64, 2500
)

// restartStatus is the part of the status that tells about restarts, as it is to be.
type restartStatus struct {
	started  []lwsv1.StartedGroup
	restarts []lwsv1.GroupRestarts
	since    *metav1.Time
	// isNew is set when a group failed since the last write: the write is then urgent.
	isNew bool
	// failures are the codes of failures that no group's reconcile reported.
	failures []string
}

// restartStatus copies decisions from leader pods into the status, counts leaders that
// were replaced without one, and records the groups that started.
func (d *setDecision) restartStatus() restartStatus {
	status := d.Set.Status
	if !Recreates(d.Set) {
		kept := slices.DeleteFunc(slices.Clone(status.Restarts), d.unanswered)
		return restartStatus{restarts: kept}
	}
	next := restartStatus{started: status.Started, restarts: status.Restarts, since: d.since()}
	started, restarts := d.newRestarts(&next)
	next.started = merge(next.started, started, startedIndex)
	next.restarts = merge(next.restarts, restarts, restartsIndex)
	next.started = merge(next.started, d.newRecords(next.started), startedIndex)
	d.trim(&next)
	return next
}

// since dates the beginning. A set that has leaders by now may have had them, and their
// restarts, under another implementation or another policy.
func (d *setDecision) since() *metav1.Time {
	if d.Set.Status.RestartsSince != nil {
		return d.Set.Status.RestartsSince
	}
	since := metav1.NewTime(d.Now.Truncate(time.Second).Add(time.Second))
	if len(d.Groups)+len(d.Leaders.Ghosts)+len(d.Leaders.Orphans) == 0 {
		since = d.Set.CreationTimestamp
	}
	return &since
}

// newRestarts returns the entries of groups that failed, and their records without a
// revision: what is counted is not counted again.
func (d *setDecision) newRestarts(next *restartStatus) (started []lwsv1.StartedGroup, restarts []lwsv1.GroupRestarts) {
	for _, leader := range d.leadersAndLeaving() {
		_, index := identity.ParentAndOrdinal(leader.Name)
		last, restart := RestartsOf(d.Set, index), RestartOf(d.Set, index, leader)
		switch {
		case restart != nil && last != nil && last.Leader == leader.UID:
			if due := restart.due(d.Set); !due.Equal(&last.DueAt) {
				changed := *last
				changed.DueAt = due
				restarts = append(restarts, changed)
			}
			continue
		case restart != nil:
			restarts = append(restarts, d.entryOf(index, leader, restart, last))
		case leader.DeletionTimestamp == nil && replacesUncounted(d.Set, index, leader):
			restarts = append(restarts, d.entryOfReplaced(index, leader, last))
			next.failures = append(next.failures, CodeLeaderReplaced)
		default:
			continue
		}
		next.isNew = true
		if record := startedAt(d.Set, index); record != nil {
			started = append(started, withoutRevision(*record))
		}
	}
	slices.SortFunc(restarts, func(a, b lwsv1.GroupRestarts) int { return cmp.Compare(a.Index, b.Index) })
	return started, restarts
}

// leadersAndLeaving returns the leaders of the set's StatefulSet, terminating ones too.
func (d *setDecision) leadersAndLeaving() []*corev1.Pod {
	leaders := make([]*corev1.Pod, 0, len(d.Groups))
	for i := range d.Groups {
		leaders = append(leaders, d.Groups[i].Leader)
	}
	sts := d.StatefulSet.Member()
	for _, pod := range d.Leaders.Ghosts {
		if sts != nil && pod.DeletionTimestamp != nil && metav1.IsControlledBy(pod, sts) {
			leaders = append(leaders, pod)
		}
	}
	return leaders
}

func (d *setDecision) entryOf(index int, leader *corev1.Pod, restart *Restart, last *lwsv1.GroupRestarts) lwsv1.GroupRestarts {
	return lwsv1.GroupRestarts{
		Index: int32(index), Leader: leader.UID, Revision: leader.Labels[lwsv1.RevisionKey],
		Count: restart.Count, FailedAt: restart.At, DueAt: restart.due(d.Set), Failures: appended(last, restart.Failure),
	}
}

// entryOfReplaced is the entry of a leader that left no evidence: it ended while no
// operator ran, or somebody deleted it.
func (d *setDecision) entryOfReplaced(index int, by *corev1.Pod, last *lwsv1.GroupRestarts) lwsv1.GroupRestarts {
	revision, at := by.Labels[lwsv1.RevisionKey], moment(d.Now)
	return lwsv1.GroupRestarts{
		Index: int32(index), Leader: startedAt(d.Set, index).Leader, Revision: revision,
		Count:    failuresInARow(d.Set, index, revision, d.Now) + 1,
		FailedAt: at, DueAt: at,
		Failures: appended(last, lwsv1.PodFailure{Pod: by.Name, Reason: CodeLeaderReplaced, At: at}),
	}
}

func appended(last *lwsv1.GroupRestarts, failure lwsv1.PodFailure) []lwsv1.PodFailure {
	var failures []lwsv1.PodFailure
	if last != nil {
		failures = slices.Clone(last.Failures)
	}
	failures = append(failures, failure)
	return failures[max(0, len(failures)-failuresKept):]
}

// newRecords returns the records of groups that started, as long as there is room. Groups
// that failed in their start are left to their own reconcile.
func (d *setDecision) newRecords(started []lwsv1.StartedGroup) []lwsv1.StartedGroup {
	var records []lwsv1.StartedGroup
	room := startedBytes - bytesOf(started...)
	for i := range d.Groups {
		g := &d.Groups[i]
		if !Records(d.Set, *g) || RestartOf(d.Set, g.Index, g.Leader) != nil {
			continue
		}
		r := g.started(d.Set)
		if r == nil || r.restarted() && !forgivesStart(d.Set, d.Revisions, g.Leader) {
			continue
		}
		entry := lwsv1.StartedGroup{Index: int32(g.Index), Leader: g.Leader.UID, Pods: r.encode(g.Leader.Labels[lwsv1.RevisionKey])}
		more := bytesOf(entry)
		if before := startedAt(d.Set, g.Index); before != nil {
			more -= bytesOf(*before)
		}
		if more <= room {
			room -= more
			records = append(records, entry)
		}
	}
	return records
}

// trim drops groups that are beyond the set's replicas, and bounds the rest.
func (d *setDecision) trim(next *restartStatus) {
	end := d.end()
	if at, _ := findIndex(next.started, end, startedIndex); at < len(next.started) {
		next.started = next.started[:at:at]
	}
	if at, _ := findIndex(next.restarts, end, restartsIndex); at < len(next.restarts) {
		next.restarts = next.restarts[:at:at]
	}
	if len(next.restarts) <= detailedAtMost {
		return
	}
	latest := slices.Clone(next.restarts)
	slices.SortFunc(latest, func(a, b lwsv1.GroupRestarts) int {
		return cmp.Or(b.FailedAt.Compare(a.FailedAt.Time), cmp.Compare(a.Index, b.Index))
	})
	latest = latest[:min(len(latest), restartsAtMost)]
	for i := detailedAtMost; i < len(latest); i++ {
		latest[i].Failures = nil
	}
	slices.SortFunc(latest, func(a, b lwsv1.GroupRestarts) int { return cmp.Compare(a.Index, b.Index) })
	next.restarts = latest
}

// end returns the index after that of the last group that exists or is wanted.
func (d *setDecision) end() int32 {
	end := workload.Replicas(d.Set)
	if sts := d.leaderStatefulSet(); sts != nil {
		end = max(end, workload.PodsOf(sts))
	}
	if n := len(d.Groups); n > 0 { // by rising index
		end = max(end, int32(d.Groups[n-1].Index)+1)
	}
	return end
}

// groupAt returns the group at an index, or nil.
func (d *setDecision) groupAt(index int32) *Group {
	at, found := slices.BinarySearchFunc(d.Groups, int(index), func(g Group, index int) int { return cmp.Compare(g.Index, index) })
	if !found {
		return nil
	}
	return &d.Groups[at]
}

// unanswered reports whether the group still has the leader under which it failed.
func (d *setDecision) unanswered(r lwsv1.GroupRestarts) bool {
	g := d.groupAt(r.Index)
	return g != nil && g.Leader.UID == r.Leader
}
