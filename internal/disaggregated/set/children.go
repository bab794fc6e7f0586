package set

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/utils/ptr"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/identity"
)

// deleteSlices deletes the children of slices that the set has no more.
func deleteSlices(in *input) (p action.Plan) {
	for _, child := range in.Children.Owned {
		if slice := disaggregated.PlaceOf(child).Slice; slice >= disaggregated.Slices(in.Set) {
			p.Do(deletion(child, fmt.Sprintf("the set has %d slices", disaggregated.Slices(in.Set)),
				fmt.Sprintf("Deleted LWS %s for removed slice %d", child.Name, slice)))
		}
	}
	return p
}

func deletion(child *lwsv1.LeaderWorkerSet, because, note string) action.Delete {
	return action.Delete{
		Object: identity.RefOf(identity.KindLeaderWorkerSet, child), Foreground: true,
		Because: action.Because(action.CodeGarbage, because),
		Tell:    action.Telling{Done: []action.Event{{Reason: "LWSDeleted", Action: "Delete", Note: note}}},
	}
}

// moveSlices writes the next counts of each slice, and what else differs. The target is first, with its slowest role: a
// write that fails does not leave the fastest role further ahead.
func moveSlices(in *input) (p action.Plan) {
	for i := range in.steps {
		s := &in.steps[i]
		for v := range s.slice.Revisions {
			for _, r := range s.inOrder(v) {
				if s.slice.Revisions[v].Rows[s.roles[r]].Child != nil {
					p.Add(in.scale(s, v, r))
				} else if v == 0 && r < len(in.Roles) && s.begins() {
					p.Add(in.create(s, r))
				}
			}
		}
		p.Add(deleteDrained(in, s))
	}
	return p
}

// inOrder are the roles of a revision: those that lose groups, the fastest first, and then the others, the slowest first.
func (s *step) inOrder(revision int) (roles []int) {
	share := func(role int) float64 {
		row, next := s.slice.Revisions[revision].Rows[s.roles[role]], s.next[revision][role]
		has := float64(len(row.Ready)) / float64(max(1, row.Intended))
		return map[bool]float64{true: -has, false: has}[int(next) < len(row.Ready)]
	}
	for r := range s.roles {
		roles = append(roles, r)
	}
	slices.SortStableFunc(roles, func(a, b int) int { return cmp.Compare(share(a), share(b)) })
	return roles
}

// create creates a child of the target.
func (in *input) create(s *step, role int) (p action.Plan) {
	place := disaggregated.Place{Slice: s.slice.Index, Revision: in.Revision, Role: s.roles[role]}
	name := disaggregated.ChildName(in.Set.Name, place)
	if conflict, isPrevious := taken("LeaderWorkerSet", in.Children, name); !in.awaitName(&p, conflict, isPrevious, nil) {
		return p
	}
	create := action.Create{
		Kind: identity.KindLeaderWorkerSet, Owner: disaggregated.SetRef(in.Set),
		Object:  disaggregated.Child(in.Set, in.Roles[role].DisaggregatedRole, place, s.next[0][role], in.Roles[role].Target),
		Because: action.Because(action.CodeMissing, fmt.Sprintf("slice %d has no role %s at revision %s", place.Slice, place.Role, place.Revision)),
		Tell:    action.Telling{Refused: &action.Event{Warning: true, Reason: "FailedCreate", Action: "Create", Note: "LeaderWorkerSet " + name}},
	}
	hasBegun := slices.ContainsFunc(s.roles, func(name string) bool { return s.slice.Revisions[0].Rows[name].Child != nil })
	if !s.isOver() && !hasBegun && role == 0 {
		create.Tell.Done = []action.Event{{Reason: "RollingUpdateStarted", Action: "Update", Note: "Started rolling update to revision " + in.Revision}}
	}
	p.Do(create)
	return p
}

// scale writes what differs on a child: the next count, how many groups its revision is to have, and what restarts no pod.
// The second stays once the revision is old.
func (in *input) scale(s *step, revision, role int) (p action.Plan) {
	row := s.slice.Revisions[revision].Rows[s.roles[role]]
	from, to := ptr.Deref(row.Child.Spec.Replicas, 1), s.next[revision][role]
	write := action.Scale{Object: identity.RefOf(identity.KindLeaderWorkerSet, row.Child), Replicas: to}
	intended := strconv.Itoa(int(row.Intended))
	noted, isNoted := row.Child.Annotations[dsv1.InitialReplicasAnnotationKey]
	if noted != intended && (from != to && (revision == 0 || !isNoted) || s.isOver() && isNoted) {
		write.Annotations = map[string]string{dsv1.InitialReplicasAnnotationKey: intended}
		write.Because = action.Because(action.CodeChanged, fmt.Sprintf("the set wants %s groups of role %s", intended, s.roles[role]))
	}
	if revision == 0 && role < len(in.Roles) {
		want := cmp.Or(in.Roles[role].Spec.GroupReplacementPolicy, lwsv1.PostTerminationGroupReplacement)
		if cmp.Or(row.Child.Spec.GroupReplacementPolicy, lwsv1.PostTerminationGroupReplacement) != want {
			write.GroupReplacementPolicy = want
			write.Because = action.Because(action.CodeChanged, "role "+s.roles[role]+" has another groupReplacementPolicy")
		}
	}
	if from != to {
		write.Because = action.Because(action.CodeRollout, fmt.Sprintf("%s of %s has %d groups and is to have %d", s.roles[role], s.slice.Revisions[revision].Name, from, to))
		write.Tell.Done = []action.Event{scaled(s.roles[role], row.Child.Name, from, to)}
	}
	if write.Because.Code != "" {
		p.Do(write)
	}
	return p
}

func scaled(role, child string, from, to int32) action.Event {
	if to < from {
		return action.Event{Reason: "ScalingDown", Action: "Update", Note: fmt.Sprintf("Scaling down %s LWS %s from %d to %d replicas", role, child, from, to)}
	}
	return action.Event{Reason: "ScalingUp", Action: "Update", Note: fmt.Sprintf("Scaling up %s LWS %s from %d to %d replicas", role, child, from, to)}
}

// deleteDrained deletes the children of older revisions of which no group is wanted or holds nodes. The set has all that it
// wants of the target then, or a revision that came to nothing.
func deleteDrained(in *input, s *step) (p action.Plan) {
	left := 0
	for v, revision := range s.slice.Revisions[1:] {
		isDrained := !slices.ContainsFunc(s.roles, func(role string) bool {
			row := revision.Rows[role]
			return row.Child != nil && (ptr.Deref(row.Child.Spec.Replicas, 1) > 0 || len(row.Groups) > 0)
		})
		if !isDrained || slices.Max(s.next[v+1]) > 0 || !s.begins() {
			left++
			continue
		}
		for _, role := range s.roles {
			if row := revision.Rows[role]; row.Child != nil {
				p.Do(deletion(row.Child, "no group of revision "+revision.Name+" is left", "Deleted drained LWS "+row.Child.Name))
			}
		}
	}
	if last := len(p.Actions) - 1; last >= 0 && left == 0 && s.plan.IsDone() {
		ends := p.Actions[last].(action.Delete)
		ends.Tell.Done = append(ends.Tell.Done, action.Event{Reason: "RollingUpdateCompleted", Action: "Update", Note: "Completed rolling update to revision " + in.Revision})
		p.Actions[last] = ends
	}
	return p
}
