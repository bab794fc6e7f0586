package set

import (
	"slices"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/leaders"
	"lockstep.dev/lockstep/internal/lws/scheduling"
	"lockstep.dev/lockstep/internal/lws/table"
	"lockstep.dev/lockstep/internal/lws/volumes"
)

// rules are those of a set, in order.
var rules = []func(*table.Table) lws.Plan{
	awaitEnds,    // look again when what the status says may have ended
	helpPrevious, // delete garbage that the collector did not delete in time
	func(t *table.Table) lws.Plan { return scheduling.Of(t).Keep() }, // create the Workload before any leader
	func(t *table.Table) (p lws.Plan) { // keep the PodDisruptionBudget of the set
		if t.Evictions != nil {
			p = limitEvictions(t)
		}
		return p
	},
	leaders.Apply, // create or apply the StatefulSet or Deployment of the leaders
	keepService,   // create or repair the shared Service
	func(t *table.Table) lws.Plan { return t.Maker.Admit() }, // let gated leaders be scheduled
}

// corrections correct what other controllers do, once they have what they need.
var corrections = []func(*table.Table) lws.Plan{
	func(t *table.Table) lws.Plan { return t.Maker.Repair() }, // replace or create leaders that the StatefulSet controller does not
	keepHistory, // move revisions that no group runs to the history
}

// Decide is the whole behaviour of a set itself. Package group decides inside a group.
func Decide(w lws.SetSnapshot) lws.Plan {
	if w.Set.DeletionTimestamp != nil {
		return lws.Plan{} // the garbage collector deletes what is left
	}
	if len(w.Beyond) > 0 {
		return leftAlone(&w)
	}
	t, plan := table.Of(w, leaders.New)
	if plan.Needs != "" {
		return lws.Plan{Needs: plan.Needs}
	}
	for _, rule := range rules {
		plan.Add(rule(t))
	}
	for _, rule := range corrections {
		if len(plan.Actions) == 0 {
			plan.Add(rule(t))
		}
	}
	if len(t.PodGroups.Owned) > 0 {
		plan.Add(scheduling.DeleteUnused(t))
	}
	if plan.Needs != "" {
		return lws.Plan{Needs: plan.Needs}
	}
	isScaled := len(volumes.Templates(t.Live)) > 0 && !writesLeaders(&plan, t.Set)
	status := writeStatus(t)
	if t.Restarted.IsNew { // the evidence goes with the leader: the status is written first
		status.Add(plan)
		plan = status
	} else {
		plan.Add(status)
	}
	if isScaled {
		plan.Add(deleteScaled(t))
	}
	return plan
}

// writesLeaders reports whether the plan creates or changes the leader StatefulSet.
func writesLeaders(p *lws.Plan, set *lwsv1.LeaderWorkerSet) bool {
	return slices.ContainsFunc(p.Actions, func(a action.Action) bool {
		ref := a.Target()
		return ref.Kind == identity.KindStatefulSet && ref.Name == set.Name
	})
}
