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
	// ConditionBackoff is the type of the condition for groups whose restart waits.
	ConditionBackoff = "RestartBackOff"
	// ConditionUnrecorded is the type of the condition for an API server that drops the
	// fields of the status that restarts need.
	ConditionUnrecorded = "RestartsUnrecorded"
)

// prunedAgain is how soon the status is written again that the API server dropped fields
// of: a new definition changes no object that the operator watches.
const prunedAgain = 30 * time.Second

const (
	noBackoff   = "no group waits to be recreated"
	noPruning   = "the API server keeps the fields of the status that restarts need"
	pruningText = "the installed CustomResourceDefinition drops status.started, status.restarts and status.restartsSince: " +
		"failed groups are not recreated; install the present definition with: lockstep install"
)

// waitingGroups returns the failed groups whose restart waits for the back-off.
func (d *setDecision) waitingGroups() []*lwsv1.GroupRestarts {
	var waiting []*lwsv1.GroupRestarts
	for i := range d.restarted.restarts {
		if r := &d.restarted.restarts[i]; r.DueAt.After(r.FailedAt.Time) && d.unanswered(*r) {
			waiting = append(waiting, r)
		}
	}
	return waiting
}

// pruned reports whether the API server drops fields of the status: the status was written
// here for this generation, and restartsSince is not in it.
func (d *setDecision) pruned() bool {
	sts := d.StatefulSet.Member()
	return Recreates(d.live) && d.told.RestartsSince == nil && d.told.ObservedGeneration == d.live.Generation &&
		sts != nil && sts.Annotations[AppliedAnnotationKey] != ""
}

// restartConditions returns the conditions about restarts that hold or have ended.
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
	if d.pruned() {
		pruned = pruningText
	}
	add(ConditionUnrecorded, "DefinitionTooOld", pruned, noPruning)
	return wanted
}

func backoffMessage(waiting []*lwsv1.GroupRestarts) string {
	if len(waiting) == 0 {
		return ""
	}
	var texts []string
	for _, r := range waiting[:min(len(waiting), namedAtMost)] {
		texts = append(texts, backoffTextOf(r))
	}
	return strings.Join(texts, "; ") + andMore(len(waiting))
}

func backoffTextOf(r *lwsv1.GroupRestarts) string {
	var last lwsv1.PodFailure
	if n := len(r.Failures); n > 0 {
		last = r.Failures[n-1]
	}
	return backoffText(int(r.Index), r.Count, r.DueAt, last)
}

// backoffText says why the restart of a group waits, and until when.
func backoffText(index int, count int32, due metav1.Time, last lwsv1.PodFailure) string {
	text := fmt.Sprintf("group %d failed %d times in a row and is recreated at %s", index, count, due.UTC().Format(time.RFC3339))
	if last.Pod != "" {
		text += " (" + explained(last) + ")"
	}
	return text
}

// backoffEvents returns the events for groups that begin to wait, and for an API server
// that drops fields.
func (d *setDecision) backoffEvents() []action.Event {
	var events []action.Event
	for _, r := range d.waitingGroups() {
		before := RestartsOf(d.live, int(r.Index))
		if (before == nil || before.Leader != r.Leader) && len(events) < namedAtMost {
			events = append(events, action.Event{Warning: true, Reason: CodeBackoff, Action: "Wait", Note: backoffTextOf(r)})
		}
	}
	if d.pruned() && !condition.IsTrue(d.told.Conditions, ConditionUnrecorded) {
		events = append(events, action.Event{Warning: true, Reason: ConditionUnrecorded, Action: "Wait", Note: pruningText})
	}
	return events
}
