package table

import (
	"maps"
	"slices"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// tabulate makes the rows of the groups that have leaders, in the order of Groups, and of the others that something is
// known of, by rising index.
func (t *Table) tabulate() {
	owner, taken := t.LeadersOwner(), t.takenLeaders()
	t.IsDisplaced = owner != nil && t.displaced(owner)
	t.Rows = make([]Row, 0, len(t.Groups))
	has := make(map[int]bool, len(t.Groups))
	for i := range t.Groups {
		has[t.Groups[i].Index] = true
		t.Rows = append(t.Rows, t.newRow(&t.Groups[i], taken))
	}
	for i := range t.Vacant {
		has[t.Vacant[i].Index] = true
		t.vacant = append(t.vacant, t.newRow(&t.Vacant[i], taken))
	}
	for _, index := range t.knownIndices(taken) {
		if !has[index] {
			has[index] = true
			t.vacant = append(t.vacant, t.newRow(&lws.Group{Index: index}, taken))
		}
	}
	unknown := &lws.Group{} // of which nothing is known: one stands for all
	for has[unknown.Index] {
		unknown.Index++
	}
	t.unknown = t.newRow(unknown, taken)
}

// knownIndices returns the indices of groups that names, refusals or failures are known of.
func (t *Table) knownIndices(taken map[int]bool) []int {
	indices := slices.AppendSeq(slices.Collect(maps.Keys(taken)), maps.Keys(t.ExhaustedBy))
	for _, refused := range t.Refused {
		indices = append(indices, refused.Index)
	}
	for _, failed := range t.Set.Status.Restarts {
		indices = append(indices, int(failed.Index))
	}
	slices.Sort(indices)
	return slices.DeleteFunc(indices, func(index int) bool { return index < 0 })
}

func (t *Table) newRow(g *lws.Group, taken map[int]bool) Row {
	r := Row{
		Group: g, Size: workload.Size(t.Set), IsStopped: t.ExhaustedBy[g.Index] != nil,
		Decision: restart.Of(t.Live, g.Leader),
	}
	r.isWanted, r.isCurrent = t.Maker.AsksFor(&r)
	if g.Leader != nil {
		r.Size = workload.SizeOf(g.Leader, t.Set)
		r.isComplete, r.IsReady, r.isAtTarget = g.Complete(t.Set), g.Ready(t.Set), g.UpToDate(t.Target.Key)
		r.isOutdated = t.Maker.IsOutdated(g.Leader)
		r.isUpdated = !t.IsPending && r.isAtTarget && !r.isOutdated && !t.IsDisplaced
		r.HasStarted = restart.HasStarted(t.Set, g.Index, g.Leader)
	}
	r.state = t.stateOf(&r, taken[g.Index])
	return r
}

// stateOf returns the state of a group. taken is set if the group cannot have its leader's name.
func (t *Table) stateOf(r *Row, taken bool) lws.GroupState {
	switch {
	case r.IsReady && !r.IsStopped:
		return lws.GroupReady
	case r.IsStopped:
		return lws.GroupExhausted
	case t.RefusalText != "" && r.Leader == nil, slices.ContainsFunc(t.Refused, func(f lws.Refused) bool { return f.Index == r.Index }):
		return lws.GroupRefused
	case r.Decision != nil && t.Now.Before(r.Decision.Due(t.Live).Time):
		return lws.GroupBackingOff
	case r.Decision != nil, restart.IsRestarting(t.Set, r.Index, r.Leader):
		return lws.GroupRestarting
	case (taken || t.Held) && r.Leader == nil, r.IsBlocked(workload.Size(t.Set)):
		return lws.GroupWaiting
	case r.HasStarted:
		return lws.GroupUnready
	}
	return lws.GroupStarting
}

// takenLeaders returns the indices of groups whose leader's name, or PVC, belongs to another object.
func (t *Table) takenLeaders() map[int]bool {
	others := t.Maker.Needed(lws.ObjectsOf(identity.KindPod, slices.Concat(t.Misspelt, t.Leaders.Foreign)))
	return lws.OrdinalsOf(slices.Concat(t.wait.leaders, others))
}

// count folds the rows. A group without its worker StatefulSet does not count.
func (t *Table) count() (c lws.Standing) {
	for i := range t.Rows {
		r := &t.Rows[i]
		if !r.isComplete {
			continue
		}
		c.Ready += lws.One(r.IsReady)
		c.Updated += lws.One(r.isUpdated)
		c.WantedReady += lws.One(r.isWanted && r.IsReady)
		c.AtTarget += lws.One(r.isWanted && r.isAtTarget)
		c.Current += lws.One(r.isCurrent)
		c.TargetUpdated += lws.One(r.isCurrent && r.isUpdated)
		c.TargetReady += lws.One(r.isCurrent && r.isUpdated && r.IsReady)
	}
	c.States = t.countStates(workload.Replicas(t.Set))
	t.Maker.Correct(&c)
	return c
}

// countStates counts as many groups as are wanted, in the order of the states.
func (t *Table) countStates(left int32) (counted [lws.GroupStates]int32) {
	var found [lws.GroupStates]int32
	for _, r := range t.All() {
		found[r.state] += lws.One(r.isWanted)
	}
	for state := range found {
		counted[state] = min(found[state], left)
		left -= counted[state]
	}
	counted[t.unknown.state] += left
	return counted
}
