package set

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/disaggregated/planner"
	"lockstep.dev/lockstep/internal/identity"
)

// ConditionRestartsPartners is True from when on failures of a role recreate groups of its partners.
const ConditionRestartsPartners = "RestartsPartners"

// failure is the last one of a group of a role.
type failure struct {
	role string
	lwsv1.GroupRestarts
}

// restartPartners recreates, once for each failure of a role, the groups of its partners that are older than the failure:
// of the same slice and revision. A group's first failure after such a request concerns no other group.
func restartPartners(in *input) (p action.Plan) {
	since, isSet := condition.Of(in.Set.Status.Conditions, ConditionRestartsPartners)
	if !disaggregated.HasPolicy(in.Set, dsv1.RestartPartners) || !isSet || since.Status != metav1.ConditionTrue {
		return p
	}
	for i := range in.steps {
		s := &in.steps[i]
		for _, revision := range s.slice.Revisions {
			for r, role := range s.roles {
				if row := revision.Rows[role]; row.Child != nil && isPartner(in.Set, role) {
					p.Add(in.recreate(s.plan.Roles[r], row, lastFailure(revision, role, since.LastTransitionTime.Time)))
				}
			}
		}
	}
	return p
}

// isPartner reports whether failures of other roles concern a role. Without names, they concern all roles.
func isPartner(set *dsv1.DisaggregatedSet, role string) bool {
	named, isGiven := set.Annotations[dsv1.RestartPartnersAnnotationKey]
	return !isGiven || slices.Contains(strings.Split(named, ","), role)
}

// failures are those of the groups of a revision that failed of themselves.
func failures(revision disaggregated.Revision) (all []failure) {
	for _, role := range slices.Sorted(maps.Keys(revision.Rows)) {
		if child := revision.Rows[role].Child; child != nil {
			for _, group := range child.Status.Restarts {
				if isOfItself(group) {
					all = append(all, failure{role, group})
				}
			}
		}
	}
	return all
}

// lastFailure returns the last failure of other roles at a revision, not before a time.
func lastFailure(revision disaggregated.Revision, role string, since time.Time) (last failure) {
	for _, f := range failures(revision) {
		if f.role != role && !f.FailedAt.Time.Before(since) && f.FailedAt.After(last.FailedAt.Time) {
			last = f
		}
	}
	return last
}

// isOfItself reports whether a group failed, and not because or soon after it was recreated with another.
func isOfItself(group lwsv1.GroupRestarts) bool {
	last := group.Failures[max(0, len(group.Failures)-2):]
	return len(last) > 0 && !slices.ContainsFunc(last, func(f lwsv1.PodFailure) bool { return strings.HasPrefix(f.Message, disaggregated.PartnerRequest) })
}

// recreate asks for groups that are older than a failure: those that are not ready, and as many of the others as may be
// unavailable, one at least.
func (in *input) recreate(role planner.Role, row disaggregated.Row, last failure) (p action.Plan) {
	free := max(1, role.Unavailable)
	for _, isReady := range row.Ready {
		if !isReady {
			free--
		}
	}
	for _, g := range row.Groups {
		if g.Leader == nil || g.Ends || !g.Leader.CreationTimestamp.Before(&last.FailedAt) || metav1.HasAnnotation(g.Leader.ObjectMeta, lwsv1.RecreateAnnotationKey) {
			continue
		}
		if g.IsReady {
			if free--; free < 0 {
				continue
			}
		}
		because := fmt.Sprintf("a group of role %s failed at %s", last.role, last.FailedAt.UTC().Format(time.RFC3339))
		p.Do(action.Annotate{
			Object: identity.RefOf(identity.KindPod, g.Leader), Annotations: map[string]string{lwsv1.RecreateAnnotationKey: disaggregated.PartnerRequest + string(last.Leader)},
			Because: action.Because(CodePartner, because),
			Tell: action.Telling{Done: []action.Event{{Reason: CodePartner, Action: "Restart",
				Note: fmt.Sprintf("Recreating group of leader %s of role %s: %s", g.Leader.Name, role.Name, because)}}},
		})
	}
	return p
}
