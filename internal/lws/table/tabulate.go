package table

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/internal/rollout"
)

// tabulate makes the rows of the groups that have leaders, in the order of Groups, and of the others that something is
// known of: those that are vacant, and then by rising index those that names, refusals or failures are known of.
func (t *Table) tabulate() {
	t.IsDisplaced = t.isDisplaced(t.LeadersOwner())
	others := t.Maker.Needed(lws.ObjectsOf(identity.KindPod, slices.Concat(t.Misspelt, t.Leaders.Foreign)))
	taken := lws.OrdinalsOf(slices.Concat(t.wait.leaders, others))
	known := maps.Clone(taken)
	for index := range t.ExhaustedBy {
		known[index] = true
	}
	for _, refused := range t.Refused {
		known[refused.Index] = true
	}
	for _, failed := range t.Set.Status.Restarts {
		known[int(failed.Index)] = true
	}
	delete(known, identity.NoOrdinal)
	parts := [][]lws.Group{t.Groups, t.Vacant, nil}
	for _, groups := range parts {
		for i := range groups {
			delete(known, groups[i].Index)
		}
	}
	for _, index := range slices.Sorted(maps.Keys(known)) {
		parts[2] = append(parts[2], lws.Group{Identity: workload.Identity{Index: index}})
	}
	t.Rows = make([]Row, 0, len(t.Groups))
	for _, groups := range parts { // each in its place: there are many
		for i := range groups {
			if r := t.newRow(&groups[i], taken); r.Leader != nil {
				t.Rows = append(t.Rows, r)
			} else {
				t.vacant = append(t.vacant, r)
			}
		}
	}
	t.unknown = t.newRow(&lws.Group{Identity: workload.Identity{Index: math.MaxInt32}}, taken).state
}

// newRow makes the row of a group. taken has the groups whose leader's name, or PVC, belongs to another object.
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
		isLabelled := workload.IsLeader(g.Leader, t.Set.Name) // no list by labels finds another: it counts as absent
		r.Place = rollout.Place{
			Index: int32(g.Index), Outdated: r.isOutdated, Ready: isLabelled && r.IsReady,
			Updated: isLabelled && r.isComplete && r.isAtTarget && !r.isOutdated,
		}
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
	case t.RefusalText != "" && r.Leader == nil, slices.ContainsFunc(t.Refused, func(f action.Refused) bool { return f.Index == r.Index }):
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

// count folds the rows. A group without its worker StatefulSet counts in no number of groups that are ready or updated.
func (t *Table) count() lws.Standing {
	left := workload.Replicas(t.Set)
	c := lws.Standing{
		Key: t.Target.Key, Pending: t.IsPending, Effective: t.Set,
		Target: max(0, left-workload.Partition(t.Set)), Budget: t.Rollout.Budget(t.Course.Replicas),
	}
	var found [lws.GroupStates]int32
	c.Led = make([]lws.LedGroup, 0, len(t.Rows))
	for _, r := range t.All() {
		found[r.state] += lws.One(r.isWanted)
		if r.Leader != nil {
			c.Led = append(c.Led, lws.LedGroup{
				Index: r.Index, Leader: r.Leader.UID, Pods: 1 + r.WorkerCount(), Created: r.Leader.CreationTimestamp.Time,
				FailedAt: restart.FailedAt(t.Set, r.Index, r.Leader), IsReady: r.IsReady, MayHaveRun: r.HasStarted || !restart.Recreates(t.Set),
			})
		}
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
	for state := range found { // as many groups as are wanted, in the order of the states
		c.States[state] = min(found[state], left)
		left -= c.States[state]
	}
	c.States[t.unknown] += left
	t.Maker.Correct(&c)
	return c
}

// Accelerators returns the extended resources that the pods of one group request.
func Accelerators(set *lwsv1.LeaderWorkerSet) map[corev1.ResourceName]resource.Quantity {
	workers := &set.Spec.LeaderWorkerTemplate.WorkerTemplate
	return gang.Accelerators(gang.Resources(workload.WrittenForLeaders(set), workers, workload.Size(set)))
}
