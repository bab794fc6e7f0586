package lws

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws/status"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// wantedConditions returns every condition whose place in the status is to change.
func (d *setDecision) wantedConditions() []metav1.Condition {
	progress := d.progress()
	beside := append(d.hinderedBeside(progress), d.resumed(progress)...)
	return status.Wanted(d.Set.Status.Conditions, progress, beside, d.notices())
}

// resumed is that an update goes on which was told to be held: it stays in progress
// until all groups are ready, and nobody is to be asked any more to resume it.
func (d *setDecision) resumed(progress []metav1.Condition) []metav1.Condition {
	updating := string(lwsv1.LeaderWorkerSetUpdateInProgress)
	told, _ := condition.Of(d.Set.Status.Conditions, updating)
	if told.Status != metav1.ConditionTrue || told.Reason != CodePaused || len(progress) != 1 || progress[0].Type != string(lwsv1.LeaderWorkerSetProgressing) {
		return nil
	}
	return []metav1.Condition{status.Usual(lwsv1.LeaderWorkerSetUpdateInProgress)}
}

// progress returns the conditions that hold, the one that tells most first.
func (d *setDecision) progress() []metav1.Condition {
	if d.refusal != "" {
		return []metav1.Condition{status.Holding(lwsv1.LeaderWorkerSetProgressing, CodeRefused, d.refusal)}
	}
	counts := d.count()
	progressing := status.Usual(lwsv1.LeaderWorkerSetProgressing)
	if d.waiting.any() {
		progressing.Reason, progressing.Message = CodePreviousIncarnation, d.waiting.message
		return []metav1.Condition{progressing}
	}
	if paused := d.pauseText(counts); paused != "" {
		return []metav1.Condition{
			status.Holding(lwsv1.LeaderWorkerSetUpdateInProgress, CodePaused, paused),
			status.Holding(lwsv1.LeaderWorkerSetProgressing, CodePaused, paused),
		}
	}
	if d.hindrance != "" {
		progressing.Reason, progressing.Message = CodeRefused, d.hindrance
	}
	if counts.currentUpdated < counts.current {
		return []metav1.Condition{status.Usual(lwsv1.LeaderWorkerSetUpdateInProgress), progressing}
	}
	if !d.held && counts.wantedReady == workload.Replicas(d.Set) && counts.currentUpdatedReady == counts.current {
		return []metav1.Condition{status.Usual(lwsv1.LeaderWorkerSetAvailable)}
	}
	return []metav1.Condition{progressing}
}

// gangLook is how often a gang scheduler that is missing is looked for.
const gangLook = 10 * time.Second

// notices are what users are told beside the progress of a set.
func (d *setDecision) notices() []status.Notice {
	return []status.Notice{
		{
			Kind: CodeGangSchedulerMissing, Says: d.GangMissing, Again: gangLook,
			OverReason: "GangSchedulerFound", Over: "the gang scheduler of this set is there", Ended: "GangSchedulerFound",
		},
		{
			Kind: ConditionBackoff, Reason: "GroupsFailing", Says: backoffMessage(d.waitingGroups()), OfGroups: true,
			OverReason: "None", Over: "no group waits to be recreated",
		},
		{
			Kind: ConditionUnrecorded, Reason: "DefinitionTooOld", Says: d.pruned(), Again: prunedAgain,
			OverReason: "None", Over: "the API server keeps the fields of the status that restarts need",
		},
		{
			Kind: CodeVolumeClaimsDiffer, Says: d.otherClaims,
			OverReason: "VolumeClaimsAsMade", Over: "the claims of the spec are those that the set was made with",
		},
		{
			Kind: CodeNameConflict, Says: d.conflict, Again: conflictLook,
			OverReason: "NoNameConflict", Over: "every name this set needs is its own or free", Ended: "NameConflictResolved",
		},
	}
}

// tell waits for the end of all that is noticed.
func (d *setDecision) tell() (p Plan) {
	for _, n := range d.notices() {
		if n.Says == "" || n.OfGroups {
			continue
		}
		var again time.Time
		if n.Again > 0 {
			again = d.Now.Add(n.Again)
		}
		p.await(again, n.Kind, n.Says)
	}
	return p
}

// noticeEvents reports each beginning, each new name conflict, and ends.
func (d *setDecision) noticeEvents() []action.Event {
	var events []action.Event
	for _, n := range d.notices() {
		told, _ := condition.Of(d.Set.Status.Conditions, n.Kind)
		was := condition.IsTrue(d.Set.Status.Conditions, n.Kind)
		switch {
		case n.OfGroups:
			events = append(events, d.backoffEvents()...)
		case n.Says != "" && (!was || n.Kind == CodeNameConflict && told.Message != n.Says):
			events = append(events, action.Event{Warning: true, Reason: n.Kind, Action: "Wait", Note: n.Says})
		case n.Says == "" && was && n.Ended != "":
			events = append(events, action.Event{Reason: n.Ended, Action: "Wait", Note: n.Over})
		}
	}
	return events
}
