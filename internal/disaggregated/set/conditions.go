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
	"lockstep.dev/lockstep/internal/disaggregated"
)

// Codes of what Progressing says. They are stable.
const (
	CodeInProgress  = "RolloutInProgress"
	CodeUnresolved  = "ReplicaTargetsUnresolved"
	CodeBlocked     = "RolloutBlocked"
	CodeRoleStalled = "RoleStalled"
	CodePaused      = "RolloutPaused"
	// CodePartner is the reason of a request to recreate a group of a partner.
	CodePartner = "PartnerRestart"
	// CodeFence is the reason of a change of the label of traffic.
	CodeFence = "PartnerFence"
)

// progress is the condition that holds now: Available, or Progressing with what the set waits for.
func progress(in *input, roles []dsv1.RoleStatus) metav1.Condition {
	if in.isAvailable(roles) {
		return metav1.Condition{Type: dsv1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: "AllRolesReady",
			Message: "All roles have reached their desired replica count, ready and updated to the current revision"}
	}
	stalled, _ := in.stalled()
	why := cmp.Or(in.unresolved(), in.hindrance(), in.paused(), in.blocked(), stalled,
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
		text := "DisaggregatedSetRoleScaler could not be created or adopted for roles: " + strings.Join(in.unknown, ", ")
		if hindrance := in.hindrance(); hindrance.Code != "" {
			text += "; " + hindrance.Sentence
		}
		r = action.Because(CodeUnresolved, text)
	}
	return r
}

// hindrance is what the API server refuses, or an object that has a name of the set.
func (in *input) hindrance() action.Reason { return cmp.Or(in.refusal(), in.conflict()) }

func (in *input) refusal() (r action.Reason) {
	if len(in.Refused) > 0 {
		r = action.Because(action.CodeRefused, action.RefusedMessage(in.Refused...))
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
			return action.Because(CodePaused, fmt.Sprintf("annotation %s holds the rollout; resume it with: kubectl lockstep rollout resume dset/%s -n %s",
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

// stalled repeats what the first child of the target says that cannot go on, and whether only a user can help.
func (in *input) stalled() (r action.Reason, lasts bool) {
	for _, s := range in.steps {
		for _, role := range s.roles {
			if child := s.slice.Revisions[0].Rows[role].Child; child != nil {
				if why, lasts := hold(child); why != "" {
					return action.Because(CodeRoleStalled, fmt.Sprintf("leaderworkerset %s: %s", child.Name, why)), lasts
				}
			}
		}
	}
	return r, false
}

// hold returns what a child says that keeps it from going on, and whether only a user can help.
func hold(child *lwsv1.LeaderWorkerSet) (why string, lasts bool) {
	for _, kind := range []string{conditionStalled, action.CodeNameConflict, action.CodeUnsupported} {
		if told, has := condition.Of(child.Status.Conditions, kind); has && told.Status == metav1.ConditionTrue {
			return told.Message, true
		}
	}
	told, has := condition.Of(child.Status.Conditions, "Progressing")
	if has && told.Status == metav1.ConditionTrue && told.Reason != "GroupsProgressing" && told.Reason != "NoGroupsProgressing" {
		return told.Message, false
	}
	return "", false
}

// settle writes the condition that holds, and ends its counterpart with the same reason: users of this API expect both. What
// hinders an available set is the reason of the counterpart.
func settle(have []metav1.Condition, holds metav1.Condition, hindrance action.Reason, generation int64, now metav1.Time) []metav1.Condition {
	conditions := append([]metav1.Condition{}, have...)
	put(&conditions, holds, generation, now)
	counterpart := map[string]string{dsv1.ConditionAvailable: dsv1.ConditionProgressing, dsv1.ConditionProgressing: dsv1.ConditionAvailable}[holds.Type]
	told, has := condition.Of(have, counterpart)
	isHindered := hindrance.Code != "" && counterpart == dsv1.ConditionProgressing
	if isHindered || has && (told.Status == metav1.ConditionTrue || told.Reason == action.CodeRefused || told.Reason == action.CodeNameConflict) {
		holds.Type, holds.Status = counterpart, metav1.ConditionFalse
		if isHindered {
			holds.Reason, holds.Message = hindrance.Code, hindrance.Sentence
		}
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
	if holds.Type == dsv1.ConditionProgressing && in.needsUser(holds.Reason) {
		stalled.Status = metav1.ConditionTrue
	}
	partners := metav1.Condition{Type: ConditionRestartsPartners, Status: metav1.ConditionFalse, Reason: "NoPolicy", Message: "a failure of a role recreates no group of another role"}
	if disaggregated.HasPolicy(in.Set, dsv1.RestartPartners) {
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

// needsUser reports whether only a user can help, where a set is not available.
func (in *input) needsUser(reason string) bool {
	switch reason {
	case CodeBlocked:
		return true
	case CodeRoleStalled:
		_, lasts := in.stalled()
		return lasts
	}
	return in.conflicts != "" || slices.ContainsFunc(in.Refused, func(r action.Refusal) bool { return !r.Passes })
}
