package lws

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
)

const noConflict = "every name this set needs is its own or free"

// exclusive lists, for each condition, those that cannot be True beside it.
var exclusive = map[string][]string{
	string(lwsv1.LeaderWorkerSetAvailable):        {string(lwsv1.LeaderWorkerSetProgressing), string(lwsv1.LeaderWorkerSetUpdateInProgress)},
	string(lwsv1.LeaderWorkerSetProgressing):      {string(lwsv1.LeaderWorkerSetAvailable)},
	string(lwsv1.LeaderWorkerSetUpdateInProgress): {string(lwsv1.LeaderWorkerSetAvailable)},
}

// wantedConditions returns every condition whose place in the status is to
// change, all in one pass: those that hold, and those that these exclude. A
// condition appears first as True; nothing is there to say that it is not.
func (d *setDecision) wantedConditions() []metav1.Condition {
	have := d.Set.Status.Conditions
	var wanted []metav1.Condition
	for _, holds := range d.progress() {
		wanted = append(wanted, holds)
		for _, other := range exclusive[holds.Type] {
			if negated, ok := condition.Negated(have, other); ok {
				wanted = append(wanted, negated)
			}
		}
	}
	wanted = append(wanted, d.gangConditions()...)
	wanted = append(wanted, d.restartConditions()...)
	if d.conflict != "" {
		return append(wanted, holding(CodeNameConflict, CodeNameConflict, d.conflict))
	}
	if condition.IsTrue(have, CodeNameConflict) {
		resolved := holding(CodeNameConflict, "NoNameConflict", noConflict)
		resolved.Status = metav1.ConditionFalse
		wanted = append(wanted, resolved)
	}
	return wanted
}

// progress returns the conditions that hold, the one that tells most first.
func (d *setDecision) progress() []metav1.Condition {
	if d.refusal != "" {
		return []metav1.Condition{d.refusedCondition()}
	}
	counts := d.count()
	progressing := holding(lwsv1.LeaderWorkerSetProgressing, "GroupsProgressing", "Replicas are progressing")
	if d.waiting.any() {
		progressing.Reason, progressing.Message = CodePreviousIncarnation, d.waiting.message
		return []metav1.Condition{progressing}
	}
	if paused := d.pauseText(counts); paused != "" {
		return []metav1.Condition{
			holding(lwsv1.LeaderWorkerSetUpdateInProgress, CodePaused, paused),
			holding(lwsv1.LeaderWorkerSetProgressing, CodePaused, paused),
		}
	}
	if counts.currentUpdated < counts.current {
		updating := holding(lwsv1.LeaderWorkerSetUpdateInProgress, "GroupsUpdating", "Rolling Upgrade is in progress")
		return []metav1.Condition{updating, progressing}
	}
	if !d.held && counts.seen == Replicas(d.Set) && counts.ready == counts.seen && counts.currentUpdatedReady == counts.current {
		return []metav1.Condition{holding(lwsv1.LeaderWorkerSetAvailable, "AllGroupsReady", "All replicas are ready")}
	}
	return []metav1.Condition{progressing}
}

func holding[T ~string](conditionType T, reason, message string) metav1.Condition {
	return metav1.Condition{Type: string(conditionType), Status: metav1.ConditionTrue, Reason: reason, Message: message}
}
