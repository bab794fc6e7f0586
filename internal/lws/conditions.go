package lws

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
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

// gangLook is how often a gang scheduler that is missing is looked for.
const gangLook = 10 * time.Second

// notice is a condition that is True while it has a message, and becomes False once when that is
// over. A set that never had the condition has none. It is a wait and, when it begins, a warning.
type notice struct {
	kind, reason, says string
	// overReason and over are those of the condition that is False.
	overReason, over string
	// ended is the event when it is over, or empty.
	ended string
	// again is how soon to look again, where no event tells of its end.
	again time.Duration
	// ofGroups is set if groups wait, and events are about each.
	ofGroups bool
}

// notices are what users are told beside the progress of a set.
func (d *setDecision) notices() []notice {
	return []notice{
		{
			kind: CodeGangSchedulerMissing, says: d.GangMissing, again: gangLook,
			overReason: "GangSchedulerFound", over: "the gang scheduler of this set is there", ended: "GangSchedulerFound",
		},
		{
			kind: ConditionBackoff, reason: "GroupsFailing", says: backoffMessage(d.waitingGroups()), ofGroups: true,
			overReason: "None", over: "no group waits to be recreated",
		},
		{
			kind: ConditionUnrecorded, reason: "DefinitionTooOld", says: d.pruned(), again: prunedAgain,
			overReason: "None", over: "the API server keeps the fields of the status that restarts need",
		},
		{
			kind: CodeVolumeClaimsDiffer, says: d.otherClaims,
			overReason: "VolumeClaimsAsMade", over: "the claims of the spec are those that the set was made with",
		},
		{
			kind: CodeNameConflict, says: d.conflict, again: conflictLook,
			overReason: "NoNameConflict", over: "every name this set needs is its own or free", ended: "NameConflictResolved",
		},
	}
}

// tell waits for the end of all that is noticed.
func (d *setDecision) tell() (p Plan) {
	for _, n := range d.notices() {
		if n.says == "" || n.ofGroups {
			continue
		}
		var again time.Time
		if n.again > 0 {
			again = d.Now.Add(n.again)
		}
		p.await(again, n.kind, n.says)
	}
	return p
}

// noticeEvents reports each beginning, each new name conflict, and ends.
func (d *setDecision) noticeEvents() []action.Event {
	var events []action.Event
	for _, n := range d.notices() {
		told, _ := conditionOf(d.Set.Status.Conditions, n.kind)
		was := condition.IsTrue(d.Set.Status.Conditions, n.kind)
		switch {
		case n.ofGroups:
			events = append(events, d.backoffEvents()...)
		case n.says != "" && (!was || n.kind == CodeNameConflict && told.Message != n.says):
			events = append(events, action.Event{Warning: true, Reason: n.kind, Action: "Wait", Note: n.says})
		case n.says == "" && was && n.ended != "":
			events = append(events, action.Event{Reason: n.ended, Action: "Wait", Note: n.over})
		}
	}
	return events
}
