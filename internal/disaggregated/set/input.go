package set

import (
	"slices"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/disaggregated/planner"
)

// input is what rules read: the table, and the next step of each slice.
type input struct {
	*disaggregated.Table
	steps []step
	// conflicts says which names that the set needs are taken.
	conflicts string
	// unknown has the External roles without a usable scaler.
	unknown []string
}

// step is the next counts of a slice.
type step struct {
	slice *disaggregated.Slice
	roles []string
	plan  planner.Slice
	next  planner.Counts
	// stuck has the roles that leave no room for the target's first groups, whatever becomes ready.
	stuck []string
}

func newInput(t *disaggregated.Table) *input {
	in := &input{Table: t}
	for _, role := range t.Roles {
		if !role.IsKnown() {
			in.unknown = append(in.unknown, role.Name)
		}
	}
	if len(in.unknown) > 0 { // no slice changes by a target that may be wrong
		return in
	}
	for i := range t.Slices {
		s := step{slice: &t.Slices[i], roles: t.RoleNames(&t.Slices[i]), plan: t.Planned(&t.Slices[i])}
		if s.next = s.plan.Wanted(); !isPaused(t) || s.isOver() {
			s.next, s.stuck = planner.Next(s.plan)
		}
		in.steps = append(in.steps, s)
	}
	return in
}

// isPaused reports whether no slice with an older revision changes.
func isPaused(t *disaggregated.Table) bool {
	return t.Set.Annotations[lwsv1.PausedAnnotationKey] == lwsv1.PausedValue
}

// begins reports whether the target of a slice has its children, or gets them now: with its first groups, or once a set
// that wants none has none.
func (s *step) begins() bool {
	wanted := func(counts []int32) bool { return slices.Max(counts) > 0 }
	wants := slices.ContainsFunc(s.plan.Roles, func(r planner.Role) bool { return r.Target > 0 })
	return wanted(s.next[0]) || !wants && !slices.ContainsFunc(s.next, wanted)
}

// isOver reports whether no older revision has a child.
func (s *step) isOver() bool { return len(s.slice.Revisions) == 1 }
