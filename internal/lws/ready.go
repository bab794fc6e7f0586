package lws

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws/status"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// CodeNameTooLong is the reason while the name of a set leaves no room for the labels of its pods.
const CodeNameTooLong = "NameTooLong"

// CodePreviousStuck is the reason while an object of a previous incarnation does not leave.
const CodePreviousStuck = "PreviousIncarnationStuck"

// ready returns the conditions that tools judge a set by. A set is Ready while it is Available and no update
// is in progress. Else it is Stalled if it waits for what only a person can change, and Reconciling if not.
//
// They follow from the other conditions and the counts: no status is written for them alone.
func (d *setDecision) ready(wanted []metav1.Condition, counts *lwsv1.LeaderWorkerSetStatus) []metav1.Condition {
	available, _ := condition.Of(wanted, string(lwsv1.LeaderWorkerSetAvailable))
	if available.Status == metav1.ConditionTrue && !condition.IsTrue(wanted, string(lwsv1.LeaderWorkerSetUpdateInProgress)) {
		return status.Ready(available.Reason, available.Message)
	}
	if reason, message := d.stalled(); reason != "" {
		return status.Unready(lwsv1.LeaderWorkerSetStalled, reason, message)
	}
	reason, message := d.reconciling(wanted, counts)
	return status.Unready(lwsv1.LeaderWorkerSetReconciling, reason, message)
}

// reconciling returns what controllers work on.
func (d *setDecision) reconciling(wanted []metav1.Condition, counts *lwsv1.LeaderWorkerSetStatus) (reason, message string) {
	usual := status.Usual(lwsv1.LeaderWorkerSetProgressing)
	progressing, _ := condition.Of(wanted, usual.Type)
	updating, _ := condition.Of(wanted, string(lwsv1.LeaderWorkerSetUpdateInProgress))
	switch {
	case updating.Status == metav1.ConditionTrue && updating.Reason == CodePaused:
		return updating.Reason, updating.Message
	case progressing.Status == metav1.ConditionTrue && progressing.Reason != usual.Reason && progressing.Reason != d.delay.code:
		return progressing.Reason, progressing.Message
	}
	for _, n := range d.notices() {
		if n.Says != "" {
			return cmp.Or(n.Reason, n.Kind), n.Says
		}
	}
	if progressing.Status == metav1.ConditionTrue && progressing.Reason != usual.Reason {
		return progressing.Reason, progressing.Message
	}
	if updating.Status == metav1.ConditionTrue {
		usual.Reason = updating.Reason
	}
	return usual.Reason, fmt.Sprintf("%d of %d groups are ready, %d are up to date",
		counts.ReadyReplicas, workload.Replicas(d.Set), counts.UpdatedReplicas)
}

// stalled returns what only a person can change, or nothing: a rule or a right, another object, the
// spec. Pods, nodes, schedulers and webhooks may yet become ready, and a pause is a wish.
func (d *setDecision) stalled() (reason, message string) {
	lasts := func(r Refused) bool { return !r.Passes }
	switch {
	case d.refusal != "" && !d.Refusal.Passes:
		return CodeRefused, d.refusal
	case d.waiting.stuck:
		return CodePreviousStuck, d.waiting.message
	case d.conflict != "":
		return CodeNameConflict, d.conflict
	case workload.IsNameTooLong(d.Set):
		return CodeNameTooLong, fmt.Sprintf("the name has %d characters, and %d groups allow %d; scale the set down, or create it under a shorter name",
			len(d.Set.Name), workload.Replicas(d.Set), workload.NameLimit(d.Set))
	case len(d.exhaustedBy) > 0 && !d.rollsExhausted():
		return CodeBudgetExceeded, d.degradedText()
	case d.otherClaims != "" && d.pending && !Paused(d.Set):
		return CodeVolumeClaimsDiffer, d.otherClaims
	case d.unresolved.Code == CodeNotHeadless:
		return CodeNotHeadless, d.unresolved.Sentence
	case slices.ContainsFunc(d.Refused, lasts):
		return CodeRefused, d.hindrance
	}
	return "", ""
}
