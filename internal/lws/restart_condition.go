package lws

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
)

const (
	// ConditionBackoff is the type of the condition that tells of groups that stay as
	// they are for a while because they fail again and again.
	ConditionBackoff = "RestartBackOff"
	// ConditionUnrecorded is the type of the condition that tells of a server that
	// does not keep what the status tells of restarts.
	ConditionUnrecorded = "RestartsUnrecorded"
)

const (
	noBackoff   = "no group waits to be recreated"
	noPruning   = "the server keeps what the status tells of restarts"
	pruningTold = "the installed CustomResourceDefinition drops status.started, status.restarts and status.restartsSince: " +
		"a group that fails while the operator is down is not noticed, and back-off begins anew with each start of the operator; " +
		"install the present definition with: lockstep install"
)

// waitingGroups are the failed groups that are not recreated at once.
func (d *setDecision) waitingGroups() []*lwsv1.GroupRestarts {
	var waiting []*lwsv1.GroupRestarts
	restarts := d.Set.Status.Restarts
	for i := range restarts {
		if r := &restarts[i]; r.DueAt.After(r.FailedAt.Time) && d.unanswered(*r) {
			waiting = append(waiting, r)
		}
	}
	return waiting
}

// restartConditions are those about restarts that hold or have ceased to.
func (d *setDecision) restartConditions() []metav1.Condition {
	var wanted []metav1.Condition
	add := func(conditionType, reason, message, over string) {
		if message != "" {
			wanted = append(wanted, holding(conditionType, reason, message))
		} else if condition.IsTrue(d.told.Conditions, conditionType) {
			ended := holding(conditionType, "None", over)
			ended.Status = metav1.ConditionFalse
			wanted = append(wanted, ended)
		}
	}
	add(ConditionBackoff, "GroupsFailing", backoffMessage(d.waitingGroups()), noBackoff)
	pruned := ""
	if d.Pruned && Recreates(d.Set) {
		pruned = pruningTold
	}
	add(ConditionUnrecorded, "DefinitionTooOld", pruned, noPruning)
	return wanted
}

func backoffMessage(waiting []*lwsv1.GroupRestarts) string {
	if len(waiting) == 0 {
		return ""
	}
	var told []string
	for _, r := range waiting[:min(len(waiting), namedAtMost)] {
		told = append(told, backoffTold(r))
	}
	return strings.Join(told, "; ") + andMore(len(waiting))
}

// backoffTold is why a group waits, and until when.
func backoffTold(r *lwsv1.GroupRestarts) string {
	text := fmt.Sprintf("group %d failed %d times in a row and is recreated at %s", r.Index, r.Count, r.DueAt.UTC().Format(time.RFC3339))
	if len(r.Failures) > 0 {
		text += " (" + explained(r.Failures[len(r.Failures)-1]) + ")"
	}
	return text
}

// backoffEvents tells of groups that begin to wait, and of a server that forgets.
func (d *setDecision) backoffEvents() []action.Event {
	var events []action.Event
	for _, r := range d.waitingGroups() {
		before := Failed(&lwsv1.LeaderWorkerSet{Spec: d.Set.Spec, Status: *d.told}, int(r.Index), r.Leader)
		if before == nil && len(events) < namedAtMost {
			events = append(events, action.Event{Warning: true, Reason: CodeBackoff, Action: "Wait", Note: backoffTold(r)})
		}
	}
	if d.Pruned && Recreates(d.Set) && !condition.IsTrue(d.told.Conditions, ConditionUnrecorded) {
		events = append(events, action.Event{Warning: true, Reason: ConditionUnrecorded, Action: "Wait", Note: pruningTold})
	}
	return events
}
