package lws

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// status writes what was found if it differs from the written status. Events of the plan's
// other writes start the next pass.
func (d *setDecision) status() (p Plan) {
	have := d.told
	want := d.statusToBe()
	d.tally(want)
	wanted := d.wantedConditions()
	var turned bool
	want.Conditions, turned = condition.Merge(have.Conditions, wanted, d.Set.Generation, d.Now)
	if d.refusal == "" {
		want.ObservedGeneration = d.Set.Generation
	}
	if equality.Semantic.DeepEqual(have, want) {
		return p
	}
	generation := have.ObservedGeneration != want.ObservedGeneration
	due := d.StatusWritten.Add(d.pace(want))
	if !turned && !generation && !d.arrived(want) && !d.restarted.IsNew && d.Now.Before(due) {
		p.wait(Wait{Reason: because(CodeStatusCoalesced, "counts changed and are written together"), Until: due})
		return p
	}
	if text := d.pruned(); text != "" {
		p.wait(Wait{Reason: because(ConditionUnrecorded, text), Until: d.Now.Add(prunedAgain)})
	}
	p.do(action.WriteStatus{
		Set:     setRef(d.Set),
		Status:  *want,
		Because: because(CodeChanged, fmt.Sprintf("%d of %d groups are ready", want.ReadyReplicas, workload.Replicas(d.Set))),
		Tell:    action.Telling{Done: d.statusEvents(want, progressTurned(have.Conditions, want.Conditions) || generation), Failures: d.restarted.Failures},
	})
	return p
}

// statusToBe returns a copy of the status to change, with what it is to tell about
// restarts. That part is long and is not copied.
func (d *setDecision) statusToBe() *lwsv1.LeaderWorkerSetStatus {
	shared := *d.told
	shared.Started, shared.Restarts = nil, nil
	want := shared.DeepCopy()
	want.Started, want.Restarts, want.RestartsSince = d.restarted.Started, d.restarted.Restarts, d.restarted.Since
	return want
}

func (d *setDecision) tally(status *lwsv1.LeaderWorkerSetStatus) {
	counts := d.count()
	status.ReadyReplicas = counts.ready
	status.UpdatedReplicas = counts.updated
	status.Replicas = 0
	if sts := d.StatefulSet.Member(); sts != nil {
		status.Replicas = sts.Status.Replicas
	}
	if status.HPAPodSelector == "" {
		status.HPAPodSelector = fmt.Sprintf("%s=%s,%s=%s", lwsv1.SetNameLabelKey, d.Set.Name, lwsv1.WorkerIndexLabelKey, workload.LeaderIndex)
	}
}

// statusEvents tells of conditions that turned, and of waits begun and ended.
func (d *setDecision) statusEvents(status *lwsv1.LeaderWorkerSetStatus, turned bool) []action.Event {
	var events []action.Event
	if first := d.progress()[0]; turned && !d.waiting.any() && first.Reason != CodeRefused { // told with the write that was refused
		events = append(events, action.Event{
			Reason: first.Reason, Action: "Update",
			Note: fmt.Sprintf("%s, with %d groups ready of total %d groups", first.Message, status.ReadyReplicas, workload.Replicas(d.Set)),
		})
	}
	if event, ok := d.waitEvent(); ok {
		events = append(events, event)
	}
	return slices.Concat(events, d.conflictEvents(), d.gangEvents(), d.backoffEvents(), d.claimsEvents())
}

// waitEvent compares the wait as it is with the wait as it was last written.
func (d *setDecision) waitEvent() (action.Event, bool) {
	before, waited := conditionOf(d.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	waited = waited && before.Status == metav1.ConditionTrue && before.Reason == CodePreviousIncarnation
	switch {
	case d.waiting.stuck && before.Message != d.waiting.message:
		return action.Event{Warning: true, Reason: "PreviousIncarnationStuck", Action: "Wait", Note: d.waiting.message}, true
	case d.waiting.any() && !waited:
		return action.Event{Reason: CodePreviousIncarnation, Action: "Wait", Note: d.waiting.message}, true
	case !d.waiting.any() && waited:
		return action.Event{Reason: "PreviousIncarnationGone", Action: "Wait", Note: "the previous incarnation is gone"}, true
	}
	return action.Event{}, false
}

func (d *setDecision) conflictEvents() []action.Event {
	before, told := conditionOf(d.Set.Status.Conditions, CodeNameConflict)
	told = told && before.Status == metav1.ConditionTrue
	switch {
	case d.conflict != "" && (!told || before.Message != d.conflict):
		return []action.Event{{Warning: true, Reason: CodeNameConflict, Action: "Wait", Note: d.conflict}}
	case d.conflict == "" && told:
		return []action.Event{{Reason: "NameConflictResolved", Action: "Wait", Note: noConflict}}
	}
	return nil
}

func conditionOf(conditions []metav1.Condition, conditionType string) (metav1.Condition, bool) {
	for _, c := range conditions {
		if c.Type == conditionType {
			return c, true
		}
	}
	return metav1.Condition{}, false
}
