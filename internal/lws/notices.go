package lws

import (
	"time"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
)

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
		wait := Wait{Reason: because(n.kind, n.says)}
		if n.again > 0 {
			wait.Until = d.Now.Add(n.again)
		}
		p.wait(wait)
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
