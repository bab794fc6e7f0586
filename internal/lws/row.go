package lws

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// row says what a rule of the set may ask of one group. derive makes one for each group, once: counts, conditions, places
// of a rollout and metrics are folds over rows.
type row struct {
	*Group
	// size is how many pods the group has, or is to have.
	size int32
	// isWanted is set unless the group is above what the set asks for, and isCurrent unless the partition keeps its revision.
	isWanted, isCurrent bool
	// isComplete is set if the leader exists, and the worker StatefulSet where the size asks for one.
	isComplete bool
	// isReady is set if every pod is ready, and the group is neither to be recreated nor stopped.
	isReady bool
	// isOutdated is set if the leader is of another revision or placement than its StatefulSet or Deployment.
	isOutdated bool
	// isAtTarget is set if all parts are at the target. isUpdated is not while a template waits, or leaders are displaced.
	isAtTarget, isUpdated bool
	// isStopped is set if the group exhausted maxGroupRestarts.
	isStopped bool
	// hasStarted is set if the status has the record of the leader.
	hasStarted bool
	// decision is the one to recreate the group, or nil.
	decision *restart.Decision
	// state is the first that applies.
	state GroupState
}

// tabulate makes the rows of the groups that have leaders, in the order of Groups, and of the others that something is
// known of, by rising index.
func (d *setDecision) tabulate() {
	owner, taken := d.leadersOwner(), d.takenLeaders()
	d.isDisplaced = owner != nil && d.displaced(owner)
	d.rows = make([]row, 0, len(d.Groups))
	has := make(map[int]bool, len(d.Groups))
	for i := range d.Groups {
		has[d.Groups[i].Index] = true
		d.rows = append(d.rows, d.newRow(&d.Groups[i], taken))
	}
	for i := range d.Vacant {
		has[d.Vacant[i].Index] = true
		d.vacant = append(d.vacant, d.newRow(&d.Vacant[i], taken))
	}
	for _, index := range d.knownIndices(taken) {
		if !has[index] {
			has[index] = true
			d.vacant = append(d.vacant, d.newRow(&Group{Index: index}, taken))
		}
	}
	unknown := &Group{} // of which nothing is known: one stands for all
	for has[unknown.Index] {
		unknown.Index++
	}
	d.unknown = d.newRow(unknown, taken)
}

// knownIndices returns the indices of groups that names, refusals or failures are known of.
func (d *setDecision) knownIndices(taken map[int]bool) []int {
	indices := slices.AppendSeq(slices.Collect(maps.Keys(taken)), maps.Keys(d.exhaustedBy))
	for _, refused := range d.Refused {
		indices = append(indices, refused.Index)
	}
	for _, failed := range d.Set.Status.Restarts {
		indices = append(indices, int(failed.Index))
	}
	slices.Sort(indices)
	return slices.DeleteFunc(indices, func(index int) bool { return index < 0 })
}

func (d *setDecision) newRow(g *Group, taken map[int]bool) row {
	r := row{
		Group: g, size: workload.Size(d.Set), isStopped: d.exhaustedBy[g.Index] != nil,
		decision: restart.Of(d.live, g.Leader),
	}
	r.isWanted, r.isCurrent = d.maker.asksFor(&r)
	if g.Leader != nil {
		r.size = workload.SizeOf(g.Leader, d.Set)
		r.isComplete, r.isReady, r.isAtTarget = g.complete(d.Set), g.Ready(d.Set), g.UpToDate(d.target.key)
		r.isOutdated = d.maker.isOutdated(g.Leader)
		r.isUpdated = !d.pending && r.isAtTarget && !r.isOutdated && !d.isDisplaced
		r.hasStarted = restart.HasStarted(d.Set, g.Index, g.Leader)
	}
	r.state = d.stateOf(&r, taken[g.Index])
	return r
}

// stateOf returns the state of a group. taken is set if the group cannot have its leader's name.
func (d *setDecision) stateOf(r *row, taken bool) GroupState {
	switch {
	case r.isReady && !r.isStopped:
		return GroupReady
	case r.isStopped:
		return GroupExhausted
	case d.refusal != "" && r.Leader == nil, slices.ContainsFunc(d.Refused, func(f Refused) bool { return f.Index == r.Index }):
		return GroupRefused
	case r.decision != nil && d.Now.Before(r.decision.Due(d.live).Time):
		return GroupBackingOff
	case r.decision != nil, restart.IsRestarting(d.Set, r.Index, r.Leader):
		return GroupRestarting
	case (taken || d.held) && r.Leader == nil, r.isBlocked(workload.Size(d.Set)):
		return GroupWaiting
	case r.hasStarted:
		return GroupUnready
	}
	return GroupStarting
}

// takenLeaders returns the indices of groups whose leader's name, or PVC, belongs to another object.
func (d *setDecision) takenLeaders() map[int]bool {
	others := d.maker.needed(bearersOf(identity.KindPod, slices.Concat(d.Misspelt, d.Leaders.Foreign)))
	return ordinalsOf(slices.Concat(d.wait.leaders, others))
}

// isBlocked reports whether objects of other owners, or of a previous incarnation, have names that the group needs.
func (g *Group) isBlocked(size int32) bool {
	return len(g.Misspelt)+len(g.Workers.Foreign)+len(g.Pods.Foreign)+len(g.Gang.Previous)+len(g.Gang.Foreign) > 0 || len(g.previous(size)) > 0
}

// workers is how many workers the group has.
func (g *Group) workers() int32 {
	if sts := g.Workers.Own(); sts != nil {
		return sts.Status.Replicas
	}
	return int32(len(g.Pods.Owned))
}

// pods returns the leader and its workers as far as the snapshot has them.
func (r *row) pods() []*corev1.Pod { return append([]*corev1.Pod{r.Leader}, r.Pods.Owned...) }

// all returns every row.
func (d *setDecision) all() []row { return slices.Concat(d.rows, d.vacant) }

// count folds the rows. A group without its worker StatefulSet does not count.
func (d *setDecision) count() (c Standing) {
	for i := range d.rows {
		r := &d.rows[i]
		if !r.isComplete {
			continue
		}
		c.Ready += one(r.isReady)
		c.Updated += one(r.isUpdated)
		c.wantedReady += one(r.isWanted && r.isReady)
		c.atTarget += one(r.isWanted && r.isAtTarget)
		c.current += one(r.isCurrent)
		c.TargetUpdated += one(r.isCurrent && r.isUpdated)
		c.TargetReady += one(r.isCurrent && r.isUpdated && r.isReady)
	}
	c.States = d.countStates(workload.Replicas(d.Set))
	d.maker.correct(&c)
	return c
}

// countStates counts as many groups as are wanted, in the order of the states.
func (d *setDecision) countStates(left int32) (counted [GroupStates]int32) {
	var found [GroupStates]int32
	for _, r := range d.all() {
		found[r.state] += one(r.isWanted)
	}
	for state := range found {
		counted[state] = min(found[state], left)
		left -= counted[state]
	}
	counted[d.unknown.state] += left
	return counted
}

// unstarted returns the groups with a leader some of whose pods have never run.
func (d *setDecision) unstarted() (found []UnstartedGroup) {
	if !restart.Recreates(d.Set) {
		return nil
	}
	for i := range d.rows {
		if r := &d.rows[i]; !r.isReady && !r.hasStarted {
			found = append(found, UnstartedGroup{Index: r.Index, Leader: r.Leader.UID, Pods: 1 + r.workers()})
		}
	}
	return found
}
