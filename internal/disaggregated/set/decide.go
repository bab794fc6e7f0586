package set

import (
	"slices"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/disaggregated"
)

// rules are those of a set, in order.
var rules = []func(*input) action.Plan{
	keepScalers,     // create and delete the scalers of External roles
	deleteSlices,    // delete the children of slices that the set has no more
	moveSlices,      // create, scale and delete children, as the planner says
	labelLeaders,    // with policy Fence, label the leaders that may get traffic
	keepServices,    // keep the Services that clients of other implementations use
	keepHistory,     // record the roles of the set, for an undo
	restartPartners, // recreate the groups of partners of a failed role
}

// Plan is what to do now, and what it was decided from, counted.
type Plan struct {
	action.Plan
	// Standing is nil for a set that is left alone or is being deleted.
	Standing *Standing
}

// Standing counts the groups of a set by role, and the part of the wanted pairs whose roles are all ready: 1 if all are.
type Standing struct {
	Roles  []dsv1.RoleStatus
	Wanted []int32
	Pairs  float64
}

// Decide is the whole behaviour of a set. Each slice has a clock of its own, and no write waits for another.
func Decide(w disaggregated.Snapshot) (plan Plan, err error) {
	t, err := disaggregated.Of(w)
	if err != nil {
		return plan, err
	}
	in := newInput(t)
	switch {
	case len(w.Beyond) > 0:
		plan.Plan = leftAlone(in)
		return plan, nil
	case w.Set.DeletionTimestamp != nil: // the garbage collector deletes what is left
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
	if w.Set.DeletionTimestamp == nil {
		plan.Standing = in.standing(roles)
	}
	return plan, nil
}

// standing counts what the set has, whatever the next step is.
func (in *input) standing(roles []dsv1.RoleStatus) *Standing {
	s := &Standing{Roles: roles}
	for _, role := range in.Roles {
		s.Wanted = append(s.Wanted, role.Target*int32(len(in.Slices)))
	}
	if !slices.ContainsFunc(in.Roles, func(r disaggregated.Role) bool { return r.Target > 0 }) {
		s.Pairs = 1
		return s
	}
	for i := range in.Slices {
		s.Pairs += min(1, in.Planned(&in.Slices[i]).Pairs()) / float64(len(in.Slices))
	}
	return s
}

// Step returns the table of a set, and the next counts of each slice: what a user is shown.
func Step(w disaggregated.Snapshot) (*disaggregated.Table, []string, error) {
	t, err := disaggregated.Of(w)
	if err != nil {
		return nil, nil, err
	}
	in := newInput(t)
	var says []string
	stalled, _ := in.stalled()
	for _, r := range slices.DeleteFunc([]action.Reason{in.unresolved(), in.hindrance(), in.blocked(), stalled}, func(r action.Reason) bool { return r.Code == "" }) {
		says = append(says, r.Sentence)
	}
	return t, says, nil
}
