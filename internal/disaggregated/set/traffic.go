package set

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/identity"
)

// labelLeaders labels, with policy Fence, each leader whose group is ready. A leader loses the label while its own group,
// or a group of another role of its slice and revision, is down after a failure. Without the policy, each loses it.
func labelLeaders(in *input) (p action.Plan) {
	selects := func(s *corev1.Service) bool { return s.Spec.Selector[dsv1.ReadyForTrafficLabelKey] != "" }
	if !disaggregated.HasPolicy(in.Set, dsv1.FencePartners) && slices.ContainsFunc(in.Services.Owned, selects) {
		return p // their selectors change first
	}
	for i := range in.Slices {
		for _, revision := range in.Slices[i].Revisions {
			down := down(revision)
			for _, role := range slices.Sorted(maps.Keys(revision.Rows)) {
				for _, g := range revision.Rows[role].Groups {
					p.Add(in.label(role, g, down))
				}
			}
		}
	}
	return p
}

// down returns the failures of groups that are wanted and were not ready since. Those whose leaders have the label were.
func down(revision disaggregated.Revision) []failure {
	return slices.DeleteFunc(failures(revision), func(f failure) bool {
		row := revision.Rows[f.role]
		lacksOne := slices.Contains(row.Ready, false) && (int(f.Index) < len(row.Ready) || row.Child.Spec.GroupIdentity == lwsv1.HashGroupIdentity)
		return !lacksOne || slices.ContainsFunc(row.Groups, func(g disaggregated.Group) bool {
			return g.Number == f.Index && (g.IsReady || g.GetsTraffic && g.Leader.UID != f.Leader)
		})
	})
}

// label changes the label of a leader that is to have another one.
func (in *input) label(role string, g disaggregated.Group, down []failure) (p action.Plan) {
	fences := disaggregated.HasPolicy(in.Set, dsv1.FencePartners)
	by := slices.IndexFunc(down, func(f failure) bool {
		return f.role != role && isPartner(in.Set, role) || f.role == role && f.Index == g.Number
	})
	gets := fences && by < 0 && (g.IsReady || g.GetsTraffic)
	if g.Leader == nil || g.Ends || gets == g.GetsTraffic {
		return p
	}
	write := action.Relabel{
		Object: identity.RefOf(identity.KindPod, g.Leader), Labels: map[string]string{dsv1.ReadyForTrafficLabelKey: map[bool]string{true: "true"}[gets]}, Uncached: true,
		Because: action.Because(CodeFence, map[bool]string{true: "its group is ready", false: "the set has no policy " + dsv1.FencePartners}[gets]),
	}
	if fences && !gets {
		write.Because.Sentence = "a group of role " + down[by].role + " failed and is not ready"
		write.Tell.Done = []action.Event{{Reason: CodeFence, Action: "Fence",
			Note: fmt.Sprintf("Leader %s of role %s gets no traffic: %s", g.Leader.Name, role, write.Because.Sentence)}}
	}
	p.Do(write)
	return p
}
