package set

import (
	"slices"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/disaggregated"
)

// rules are those of a set, in order.
var rules = []func(*input) action.Plan{
	keepScalers,  // create and delete the scalers of External roles
	deleteSlices, // delete the children of slices that the set has no more
	moveSlices,   // create, scale and delete children, as the planner says
	keepPolicies, // copy what restarts no pod
	keepServices, // keep the Services that clients of other implementations use
	keepHistory,  // record the roles of the set, for an undo
}

// Decide is the whole behaviour of a set. Each slice has a clock of its own.
func Decide(w disaggregated.Snapshot) (plan action.Plan, err error) {
	t, err := disaggregated.Of(w)
	if err != nil {
		return plan, err
	}
	in := newInput(t)
	switch {
	case len(w.Beyond) > 0:
		return leftAlone(in), nil
	case w.Set.DeletionTimestamp != nil: // the garbage collector deletes what is left
	case w.Refusal.Sentence != "" && w.Now.Before(w.Refusal.Again()):
		plan.Await(w.Refusal.Again(), action.CodeRefused, in.refusal().Sentence)
	default:
		for _, rule := range rules {
			plan.Add(rule(in))
		}
	}
	if in.conflicts != "" { // no event tells when a foreign object is gone
		plan.Await(w.Now.Add(conflictLook), action.CodeNameConflict, in.conflicts)
	}
	roles := statusOf(in).RoleStatuses
	plan.Add(writeScalers(in, roles))
	plan.Add(writeStatus(in))
	return plan, nil
}

// Step returns the table of a set, and the next counts of each slice: what a user is shown.
func Step(w disaggregated.Snapshot) (*disaggregated.Table, []string, error) {
	t, err := disaggregated.Of(w)
	if err != nil {
		return nil, nil, err
	}
	in := newInput(t)
	var says []string
	for _, r := range slices.DeleteFunc([]action.Reason{in.unresolved(), in.refusal(), in.blocked(), in.stalled()}, func(r action.Reason) bool { return r.Code == "" }) {
		says = append(says, r.Sentence)
	}
	return t, says, nil
}
