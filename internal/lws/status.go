package lws

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws/status"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// status writes what was found if it differs from the written status. Events of the plan's
// other writes start the next pass.
func (d *setDecision) status() (p Plan) {
	have := &d.Set.Status
	want, changed := d.newStatus()
	p.Standing = d.stand(want.Conditions)
	if equality.Semantic.DeepEqual(have, want) {
		return p
	}
	due := status.Due(have, want, workload.Replicas(d.Set), d.StatusWritten)
	if !changed && !d.restarted.IsNew && d.Now.Before(due) {
		p.wait(Wait{Reason: because(CodeStatusCoalesced, "counts changed and are written together"), Until: due})
		return p
	}
	progressed := have.ObservedGeneration != want.ObservedGeneration || status.ProgressChanged(have.Conditions, want.Conditions)
	p.do(action.WriteStatus{
		Set:     setRef(d.Set),
		Status:  *want,
		Because: because(CodeChanged, fmt.Sprintf("%d of %d groups are ready", want.ReadyReplicas, workload.Replicas(d.Set))),
		Tell:    action.Telling{Done: d.statusEvents(want, progressed), Failures: d.restarted.Failures},
	})
	return p
}

// newStatus returns the status as it is to be, and whether a condition changes. The entries of
// restarts and started groups may be many and are not copied.
func (d *setDecision) newStatus() (want *lwsv1.LeaderWorkerSetStatus, changed bool) {
	shared := d.Set.Status
	shared.Started, shared.Restarts = nil, nil
	want = shared.DeepCopy()
	want.Started, want.Restarts, want.RestartsSince = d.restarted.Started, d.restarted.Restarts, d.restarted.Since
	want.GroupRestarts = d.restarted.Total()
	want.Replicas, want.ReadyReplicas, want.UpdatedReplicas = 0, d.Ready, d.Updated
	if owner := ownerOf(d.StatefulSet.Own(), d.Deployment.Own()); owner != nil {
		want.Replicas = owner.has
	}
	if want.HPAPodSelector == "" {
		want.HPAPodSelector = fmt.Sprintf("%s=%s,%s=%s", lwsv1.SetNameLabelKey, d.Set.Name, lwsv1.WorkerIndexLabelKey, workload.LeaderIndex)
	}
	want.ObservedGeneration = d.Set.Generation
	wanted := d.wantedConditions()
	wanted = append(wanted, d.ready(wanted, want)...)
	kept := status.Kept(d.Set.Status.Conditions, wanted)
	want.Conditions, changed = condition.Merge(kept, wanted, d.Set.Generation, d.Now)
	status.Sort(want.Conditions)
	return want, changed || len(kept) < len(d.Set.Status.Conditions)
}

// statusEvents reports progress, and waits that begin and end.
func (d *setDecision) statusEvents(want *lwsv1.LeaderWorkerSetStatus, progressed bool) []action.Event {
	var events []action.Event
	if first := d.progress()[0]; progressed && !d.waiting.any() &&
		!slices.Contains([]string{CodeRefused, CodeBudgetExceeded, d.delay.code, d.unresolved.Code}, first.Reason) { // reported with their writes
		events = append(events, action.Event{
			Reason: first.Reason, Action: "Update",
			Note: fmt.Sprintf("%s, with %d groups ready of total %d groups", first.Message, want.ReadyReplicas, workload.Replicas(d.Set)),
		})
	}
	if event, ok := d.waitEvent(); ok {
		events = append(events, event)
	}
	return append(events, d.noticeEvents()...)
}

// waitEvent compares the wait as it is with the wait as it was last written.
func (d *setDecision) waitEvent() (action.Event, bool) {
	before, waited := condition.Of(d.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	waited = waited && before.Status == metav1.ConditionTrue && before.Reason == CodePreviousIncarnation
	switch {
	case d.waiting.stuck && before.Message != d.waiting.message:
		return action.Event{Warning: true, Reason: CodePreviousStuck, Action: "Wait", Note: d.waiting.message}, true
	case d.waiting.any() && !waited:
		return action.Event{Reason: CodePreviousIncarnation, Action: "Wait", Note: d.waiting.message}, true
	case !d.waiting.any() && waited:
		return action.Event{Reason: "PreviousIncarnationGone", Action: "Wait", Note: "the previous incarnation is gone"}, true
	}
	return action.Event{}, false
}
