package lws

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

const (
	// startedBytes bounds what the status tells of groups that started: the whole
	// object must fit into the API server's storage. It is enough for some 3,800 groups
	// of 8 pods; those beyond it are judged by what their pods tell of themselves.
	startedBytes = 512 << 10
	// toldAtMost is how many groups' failures are told in full, the latest, and
	// restartsAtMost of how many it is told at all that they failed.
	toldAtMost, restartsAtMost = 64, 2500
	// unansweredAtMost is how many groups may be on their way to be recreated at a
	// time: what is not answered yet must be told.
	unansweredAtMost = 4000
)

// restarts puts into the status what looks at the groups found: what groups were
// made of when they started, and which of them failed. That a group failed is
// written down before anything of it is deleted, and bound to its leader's UID: it
// is answered once, by whoever runs then.
//
// The rules after this one see the set with the status as it is to be.
func (d *setDecision) restarts() {
	set := *d.Set
	d.Set = &set
	if !Recreates(d.Set) || !Recreates(d.live) { // None holds at once, also while the rollout is held
		d.forgive()
		return
	}
	d.since()
	started, failed := d.answered()
	status := &d.Set.Status
	status.Started = merge(status.Started, started, startedIndex)
	status.Restarts = merge(status.Restarts, failed, restartsIndex)
	status.Restarts = merge(status.Restarts, d.whole(), restartsIndex)
	status.Restarts = merge(status.Restarts, d.hastened(), restartsIndex)
	d.trim()
}

// answered is what is new of the groups: those that started, and those that failed.
func (d *setDecision) answered() (started []lwsv1.StartedGroup, failed []lwsv1.GroupRestarts) {
	room := startedBytes - bytesOf(d.Set.Status.Started)
	turns := unansweredAtMost - d.unansweredCount()
	for i := range d.Groups {
		g := &d.Groups[i]
		finding := d.Findings[g.Leader.UID]
		switch {
		case Failed(d.Set, g.Index, g.Leader.UID) != nil:
		case finding.Failure != nil && finding.Dismissed:
		case finding.Failure != nil && !d.recreatesGroup(finding.Revision):
			d.plan.Dismissed = append(d.plan.Dismissed, finding.Leader)
		case finding.Failure != nil:
			if len(failed) < turns { // or else with a later look
				failed = append(failed, d.condemn(finding, false))
			}
		default:
			if entry, ok := d.start(g, finding.Started); ok && room >= d.growsBy(entry) {
				room -= d.growsBy(entry)
				started = append(started, entry)
			}
		}
	}
	for _, f := range d.departed() {
		failed = append(failed, d.condemn(f, true))
	}
	return started, failed
}

// departed are the failures found of leaders that are leaving, or have left before
// the set looked: a StatefulSet clears failed pods away at once.
func (d *setDecision) departed() []Finding {
	var departed []Finding
	for _, f := range d.Findings {
		g := d.groupAt(int32(f.Index))
		led := g != nil && (g.Leader.UID == f.Leader.UID || Failed(d.Set, f.Index, g.Leader.UID) != nil)
		told := Failed(d.Set, f.Index, f.Leader.UID) != nil
		if f.Failure != nil && !led && !told && int32(f.Index) < d.end() && d.recreatesGroup(f.Revision) {
			departed = append(departed, f)
		}
	}
	slices.SortFunc(departed, func(a, b Finding) int { return cmp.Compare(a.Index, b.Index) })
	return departed
}

// forgive drops what restarts need once the policy is None. What failed before
// stays told, but for failures that were not answered yet.
func (d *setDecision) forgive() {
	status := &d.Set.Status
	status.Started, status.RestartsSince = nil, nil
	if slices.ContainsFunc(status.Restarts, d.unanswered) {
		status.Restarts = slices.DeleteFunc(slices.Clone(status.Restarts), d.unanswered)
	}
}

// since dates the beginning. A set that has leaders by now may have had them, and
// their restarts, under another implementation or another policy.
func (d *setDecision) since() {
	if d.Set.Status.RestartsSince != nil {
		return
	}
	since := metav1.NewTime(d.Now.Truncate(time.Second).Add(time.Second))
	if len(d.Groups)+len(d.Leaders.Ghosts)+len(d.Leaders.Orphans) == 0 {
		since = d.Set.CreationTimestamp
	}
	d.Set.Status.RestartsSince = &since
}

// start is what a group was made of when it started, unless the status tells.
func (d *setDecision) start(g *Group, started string) (entry lwsv1.StartedGroup, ok bool) {
	if isRecorded(d.Set, g.Index, g.Leader.UID) {
		return entry, false
	}
	if started == "" {
		started = g.startedInPeace(d.Set)
	}
	return lwsv1.StartedGroup{Index: int32(g.Index), Leader: g.Leader.UID, Pods: started}, started != ""
}

// whole dates groups that run again after they failed.
func (d *setDecision) whole() []lwsv1.GroupRestarts {
	var whole []lwsv1.GroupRestarts
	for _, last := range d.Set.Status.Restarts {
		g := d.groupAt(last.Index)
		if last.WholeAt == nil && g != nil && g.Leader.UID != last.Leader && (isRecorded(d.Set, g.Index, g.Leader.UID) || g.Ready(d.Set)) {
			at := moment(d.Now)
			last.WholeAt = &at
			whole = append(whole, last)
		}
	}
	return whole
}

// groupAt is the group at an index, or nil if none stands there.
func (d *setDecision) groupAt(index int32) *Group {
	at, found := slices.BinarySearchFunc(d.Groups, int(index), func(g Group, index int) int { return cmp.Compare(g.Index, index) })
	if !found {
		return nil
	}
	return &d.Groups[at]
}

// startedInPeace is the record of a group that started without a restart, or
// empty: what any other is to be thought of is for a look at the group to say.
func (g *Group) startedInPeace(set *lwsv1.LeaderWorkerSet) string {
	r := g.started(set)
	if r == nil || slices.ContainsFunc(r, func(pod recorded) bool { return pod.restarts > 0 }) {
		return ""
	}
	return r.encode()
}

// condemn is that a group failed, and from when on it is recreated: at once if its
// leader is leaving by itself, or if somebody deleted a pod of it, as by draining a
// node. That is not held against the group: it says nothing of how the next one will
// fare.
func (d *setDecision) condemn(f Finding, leaving bool) lwsv1.GroupRestarts {
	patience := backoffOf(d.Set)
	deleted := f.Failure.Code == CodePodDeleted
	failed := lwsv1.GroupRestarts{
		Index: int32(f.Index), Leader: f.Leader.UID, Revision: f.Revision,
		Count: one(!deleted), FailedAt: moment(d.Now), DueAt: moment(d.Now),
	}
	if last := RestartsOf(d.Set, f.Index); last != nil {
		failed.Failures = slices.Clone(last.Failures)
		if inARow(last, f.Revision) && (last.WholeAt == nil || d.Now.Before(last.WholeAt.Add(patience.Reset))) {
			failed.Count += last.Count
		}
	}
	if wait := patience.After(failed.Count); wait > 0 && !leaving && !deleted {
		failed.DueAt = moment(d.Now.Add(wait + time.Second - time.Nanosecond))
	}
	failed.Failures = append(failed.Failures, f.Failure.PodFailure)
	failed.Failures = failed.Failures[max(0, len(failed.Failures)-failuresKept):]
	d.failures = append(d.failures, f.Failure.Code)
	return failed
}

// inARow tells whether a failure of a revision adds to those before. What a broken
// template did is not held against the one that mends it.
func inARow(last *lwsv1.GroupRestarts, revision string) bool {
	return last.Revision == "" || last.Revision == revision // it was not written down before
}

// skew is by how much clocks of two processes may differ.
const skew = time.Minute

// hastened are groups that wait for longer than they should by now: their back-off
// was made shorter since, or the clock was put back.
func (d *setDecision) hastened() []lwsv1.GroupRestarts {
	var hastened []lwsv1.GroupRestarts
	patience := backoffOf(d.Set)
	for _, r := range d.Set.Status.Restarts {
		if !d.Now.Before(r.DueAt.Time) || !d.unanswered(r) {
			continue
		}
		if r.FailedAt.After(d.Now.Add(skew)) {
			r.FailedAt = moment(d.Now)
		}
		due := r.FailedAt
		if wait := patience.After(r.Count); wait > 0 {
			due = metav1.NewTime(r.FailedAt.Add(wait + time.Second))
		}
		if due.Before(&r.DueAt) {
			r.DueAt = due
			hastened = append(hastened, r)
		}
	}
	return hastened
}

// trim drops what is told of groups that are no more, and the details of all but
// the latest failures.
func (d *setDecision) trim() {
	status, end := &d.Set.Status, d.end()
	if at, _ := findIndex(status.Started, end, startedIndex); at < len(status.Started) {
		status.Started = status.Started[:at:at]
	}
	if at, _ := findIndex(status.Restarts, end, restartsIndex); at < len(status.Restarts) {
		status.Restarts = status.Restarts[:at:at]
	}
	if len(d.failures) == 0 {
		return
	}
	status.Restarts = d.abridged(status.Restarts)
	if len(status.Restarts) > restartsAtMost { // a group that failed is not compared any more
		failed := func(s lwsv1.StartedGroup) bool { return Failed(d.Set, int(s.Index), s.Leader) != nil }
		status.Started = slices.DeleteFunc(slices.Clone(status.Started), failed)
	}
}

// end is the index after that of the last group that there is or is to be.
func (d *setDecision) end() int32 {
	end := Replicas(d.Set)
	if sts := d.leaderStatefulSet(); sts != nil {
		end = max(end, PodsOf(sts))
	}
	if n := len(d.Groups); n > 0 { // by rising index
		end = max(end, int32(d.Groups[n-1].Index)+1)
	}
	return end
}

// abridged tells the latest failures in full, more without details, and of groups
// that have been recreated no more than a status can hold.
func (d *setDecision) abridged(restarts []lwsv1.GroupRestarts) []lwsv1.GroupRestarts {
	latest := slices.Clone(restarts)
	slices.SortFunc(latest, func(a, b lwsv1.GroupRestarts) int {
		return cmp.Or(b.FailedAt.Compare(a.FailedAt.Time), cmp.Compare(a.Index, b.Index))
	})
	for i := toldAtMost; i < len(latest); i++ {
		latest[i].Failures = nil
	}
	if len(latest) > restartsAtMost {
		slices.SortStableFunc(latest, func(a, b lwsv1.GroupRestarts) int { return cmp.Compare(one(d.unanswered(b)), one(d.unanswered(a))) })
		latest = latest[:max(restartsAtMost, d.unansweredCount())]
	}
	slices.SortFunc(latest, func(a, b lwsv1.GroupRestarts) int { return cmp.Compare(a.Index, b.Index) })
	return latest
}

// unansweredCount is of how many groups the status tells that they are to go.
func (d *setDecision) unansweredCount() int {
	count := 0
	for _, r := range d.Set.Status.Restarts {
		count += int(one(d.unanswered(r)))
	}
	return count
}

// unanswered tells whether the group is still led by the leader it failed under.
func (d *setDecision) unanswered(r lwsv1.GroupRestarts) bool {
	g := d.groupAt(r.Index)
	return g != nil && g.Leader.UID == r.Leader
}
