package lws

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// exclusive lists, for each condition, those that cannot be True beside it.
var exclusive = map[string][]string{
	string(lwsv1.LeaderWorkerSetAvailable):        {string(lwsv1.LeaderWorkerSetProgressing), string(lwsv1.LeaderWorkerSetUpdateInProgress)},
	string(lwsv1.LeaderWorkerSetProgressing):      {string(lwsv1.LeaderWorkerSetAvailable)},
	string(lwsv1.LeaderWorkerSetUpdateInProgress): {string(lwsv1.LeaderWorkerSetAvailable)},
}

// usual is what a condition of the API says that has ceased to hold, for whatever
// reason it did last: clients look for these texts, and what was waited for is past.
var usual = map[string]metav1.Condition{
	string(lwsv1.LeaderWorkerSetAvailable):        holding(lwsv1.LeaderWorkerSetAvailable, "AllGroupsReady", "All replicas are ready"),
	string(lwsv1.LeaderWorkerSetProgressing):      holding(lwsv1.LeaderWorkerSetProgressing, "GroupsProgressing", "Replicas are progressing"),
	string(lwsv1.LeaderWorkerSetUpdateInProgress): holding(lwsv1.LeaderWorkerSetUpdateInProgress, "GroupsUpdating", "Rolling Upgrade is in progress"),
}

// wantedConditions returns every condition whose place in the status is to
// change, all in one pass: those that hold, and those that these exclude. A
// condition appears first as True; nothing is there to say that it is not.
func (d *setDecision) wantedConditions() []metav1.Condition {
	have := d.Set.Status.Conditions
	var wanted []metav1.Condition
	progress := d.progress()
	for _, holds := range progress {
		wanted = append(wanted, holds)
		for _, other := range exclusive[holds.Type] {
			if condition.IsTrue(have, other) {
				wanted = append(wanted, ceased(usual[other]))
			}
		}
	}
	wanted = append(wanted, d.hinderedBeside(progress)...)
	wanted = append(wanted, d.resumed(progress)...)
	for _, n := range d.notices() {
		switch {
		case n.says != "":
			wanted = append(wanted, holding(n.kind, cmp.Or(n.reason, n.kind), n.says))
		case condition.IsTrue(have, n.kind):
			wanted = append(wanted, ceased(holding(n.kind, n.overReason, n.over)))
		}
	}
	return wanted
}

func ceased(c metav1.Condition) metav1.Condition {
	c.Status = metav1.ConditionFalse
	return c
}

// resumed is that an update goes on which was told to be held: it stays in progress
// until all groups are ready, and nobody is to be asked any more to resume it.
func (d *setDecision) resumed(progress []metav1.Condition) []metav1.Condition {
	updating := string(lwsv1.LeaderWorkerSetUpdateInProgress)
	told, _ := conditionOf(d.Set.Status.Conditions, updating)
	if told.Status != metav1.ConditionTrue || told.Reason != CodePaused || len(progress) != 1 || progress[0].Type != string(lwsv1.LeaderWorkerSetProgressing) {
		return nil
	}
	return []metav1.Condition{usual[updating]}
}

// progress returns the conditions that hold, the one that tells most first.
func (d *setDecision) progress() []metav1.Condition {
	if d.refusal != "" {
		return []metav1.Condition{holding(lwsv1.LeaderWorkerSetProgressing, CodeRefused, d.refusal)}
	}
	counts := d.count()
	progressing := usual[string(lwsv1.LeaderWorkerSetProgressing)]
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
	if d.hindrance != "" {
		progressing.Reason, progressing.Message = CodeRefused, d.hindrance
	}
	if counts.currentUpdated < counts.current {
		return []metav1.Condition{usual[string(lwsv1.LeaderWorkerSetUpdateInProgress)], progressing}
	}
	if !d.held && counts.wantedReady == workload.Replicas(d.Set) && counts.currentUpdatedReady == counts.current {
		return []metav1.Condition{usual[string(lwsv1.LeaderWorkerSetAvailable)]}
	}
	return []metav1.Condition{progressing}
}

func holding[T ~string](conditionType T, reason, message string) metav1.Condition {
	return metav1.Condition{Type: string(conditionType), Status: metav1.ConditionTrue, Reason: reason, Message: message}
}
