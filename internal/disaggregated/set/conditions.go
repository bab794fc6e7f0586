package set

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
)

// Codes of what Progressing says. They are stable.
const (
	CodeInProgress  = "RolloutInProgress"
	CodeUnresolved  = "ReplicaTargetsUnresolved"
	CodeBlocked     = "RolloutBlocked"
	CodeRoleStalled = "RoleStalled"
	// CodePartner is the reason of a request to recreate a group of a partner.
	CodePartner = "PartnerRestart"
)

// progress is the condition that holds now: Available, or Progressing with what the set waits for.
func progress(in *input, roles []dsv1.RoleStatus) metav1.Condition {
	if in.isAvailable(roles) {
		return metav1.Condition{Type: dsv1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: "AllRolesReady",
			Message: "All roles have reached their desired replica count, ready and updated to the current revision"}
	}
	why := cmp.Or(in.unresolved(), in.refusal(), in.conflict(), in.paused(), in.blocked(), in.stalled(),
		action.Because(CodeInProgress, "Not all roles have reached their desired replica count, ready and updated to the current revision"))
	return metav1.Condition{Type: dsv1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: why.Code, Message: why.Sentence}
}

func (in *input) isAvailable(roles []dsv1.RoleStatus) bool {
	for i, role := range in.Roles {
		want := role.Target * int32(len(in.Slices))
		if !role.IsKnown() || roles[i].Replicas != want || roles[i].ReadyReplicas != want || roles[i].UpdatedReplicas != want {
			return false
		}
	}
	return true
}

func (in *input) unresolved() (r action.Reason) {
	if len(in.unknown) > 0 {
		r = action.Because(CodeUnresolved, "DisaggregatedSetRoleScaler could not be created or adopted for roles: "+strings.Join(in.unknown, ", "))
	}
	return r
}

func (in *input) refusal() (r action.Reason) {
	refused := append([]action.Refusal{}, in.Refused...)
	if in.Refusal.Sentence != "" && in.Now.Before(in.Refusal.Again()) {
		refused = append(refused, in.Refusal)
	}
	if len(refused) > 0 {
		r = action.Because(action.CodeRefused, action.RefusedMessage(refused...))
	}
	return r
}

func (in *input) conflict() (r action.Reason) {
	if in.conflicts != "" {
		r = action.Because(action.CodeNameConflict, in.conflicts)
	}
	return r
}

func (in *input) paused() (r action.Reason) {
	for _, s := range in.steps {
		if isPaused(in.Table) && !s.isOver() {
			return action.Because("RolloutPaused", fmt.Sprintf("annotation %s holds the rollout; resume it with: kubectl lockstep rollout resume dset/%s -n %s",
				lwsv1.PausedAnnotationKey, in.Set.Name, in.Set.Namespace))
		}
	}
	return r
}

// blocked says which roles leave no room for the first group of the target, and what to do.
func (in *input) blocked() (r action.Reason) {
	for _, s := range in.steps {
		if len(s.stuck) > 0 {
			roles := strings.Join(s.stuck, ", ")
			return action.Because(CodeBlocked, fmt.Sprintf("slice %d: maxSurge 0 leaves no room for a first group of %s beside the old one, and no pair may be lost; "+
				"set maxSurge 1 for it, or maxUnavailable to the size of every role, or annotate the set with %s=true", s.slice.Index, roles, dsv1.SurgeOneAnnotationKey))
		}
	}
	return r
}

// stalled repeats what the first child says that cannot go on.
func (in *input) stalled() (r action.Reason) {
	for _, s := range in.steps {
		for _, role := range s.roles {
			child := s.slice.Revisions[0].Rows[role].Child
			if child == nil {
				continue
			}
			told, has := condition.Of(child.Status.Conditions, "Progressing")
			if has && told.Reason != "GroupsProgressing" && told.Reason != "NoGroupsProgressing" {
				return action.Because(CodeRoleStalled, fmt.Sprintf("leaderworkerset %s: %s", child.Name, told.Message))
			}
		}
	}
	return r
}

// settle writes the condition that holds, and ends its counterpart with the same reason: users of this API expect both.
func settle(have []metav1.Condition, holds metav1.Condition, generation int64, now metav1.Time) []metav1.Condition {
	conditions := append([]metav1.Condition{}, have...)
	put(&conditions, holds, generation, now)
	counterpart := map[string]string{dsv1.ConditionAvailable: dsv1.ConditionProgressing, dsv1.ConditionProgressing: dsv1.ConditionAvailable}[holds.Type]
	if told, has := condition.Of(have, counterpart); has && told.Status == metav1.ConditionTrue {
		holds.Type, holds.Status = counterpart, metav1.ConditionFalse
		put(&conditions, holds, generation, now)
	}
	return conditions
}

// put sets a condition. The time of its last transition changes with its status alone.
func put(conditions *[]metav1.Condition, c metav1.Condition, generation int64, now metav1.Time) {
	c.ObservedGeneration, c.LastTransitionTime = generation, now
	if told, has := condition.Of(*conditions, c.Type); has && told.Status == c.Status {
		c.LastTransitionTime = told.LastTransitionTime
	}
	meta.SetStatusCondition(conditions, c)
}

// beside are the conditions beside that of progress: Ready as Available, Stalled while only a user can help, and whether
// failures recreate partners. The last two appear first as True.
func (in *input) beside(have []metav1.Condition, holds metav1.Condition) (all []metav1.Condition) {
	ready := holds
	ready.Type, ready.Status = "Ready", metav1.ConditionFalse
	if holds.Type == dsv1.ConditionAvailable {
		ready.Status = metav1.ConditionTrue
	}
	stalled := holds
	stalled.Type, stalled.Status = conditionStalled, metav1.ConditionFalse
	if holds.Reason == CodeBlocked || holds.Reason == CodeRoleStalled && in.hasStalledChild() {
		stalled.Status = metav1.ConditionTrue
	}
	partners := metav1.Condition{Type: ConditionRestartsPartners, Status: metav1.ConditionFalse, Reason: "NoPolicy", Message: "a failure of a role concerns that role alone"}
	if restartsPartners(in.Set) {
		partners.Status, partners.Reason = metav1.ConditionTrue, "PolicyRestart"
		partners.Message = "a failure of a role recreates the groups of its partners that are older than the failure"
	}
	return slices.DeleteFunc([]metav1.Condition{ready, stalled, partners}, func(c metav1.Condition) bool {
		_, told := condition.Of(have, c.Type)
		return !told && c.Status == metav1.ConditionFalse && c.Type != ready.Type
	})
}

// conditionStalled is the type of a condition that children have, too.
const conditionStalled = "Stalled"

func (in *input) hasStalledChild() bool {
	return slices.ContainsFunc(in.Children.Owned, func(child *lwsv1.LeaderWorkerSet) bool {
		return condition.IsTrue(child.Status.Conditions, conditionStalled)
	})
}
