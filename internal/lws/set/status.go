package set

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/leaders"
	"lockstep.dev/lockstep/internal/lws/scheduling"
	"lockstep.dev/lockstep/internal/lws/status"
	"lockstep.dev/lockstep/internal/lws/table"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// writeStatus writes what was found if it differs from the written status. Events of the plan's
// other writes start the next reconcile.
func writeStatus(t *table.Table) (p lws.Plan) {
	have := &t.Set.Status
	want := newStatus(t)
	standing := t.Standing
	standing.Conditions = want.Conditions
	p.Standing = &standing // which is kept, while the table is not
	if equality.Semantic.DeepEqual(have, want) {
		return p
	}
	due := status.Due(have, want, workload.Replicas(t.Set), t.StatusWritten)
	if !t.Restarted.IsNew && t.Now.Before(due) {
		p.Wait(lws.Wait{Reason: lws.Because(lws.CodeStatusCoalesced, "counts changed and are written together"), Until: due})
		return p
	}
	progressed := have.ObservedGeneration != want.ObservedGeneration || status.ProgressChanged(have.Conditions, want.Conditions)
	p.Do(action.WriteStatus{
		Object:  lws.SetRef(t.Set),
		Status:  &lwsv1.LeaderWorkerSet{Status: *want},
		Because: lws.Because(lws.CodeChanged, fmt.Sprintf("%d of %d groups are ready", want.ReadyReplicas, workload.Replicas(t.Set))),
		Tell:    action.Telling{Done: statusEvents(t, want, progressed), Failures: t.Restarted.Failures},
	})
	return p
}

// newStatus returns the status as it is to be. The entries of restarts and started groups may be many and are not
// copied.
func newStatus(t *table.Table) *lwsv1.LeaderWorkerSetStatus {
	shared := t.Set.Status
	shared.Started, shared.Restarts = nil, nil
	want := shared.DeepCopy()
	want.Started, want.Restarts, want.RestartsSince = t.Restarted.Started, t.Restarted.Restarts, t.Restarted.Since
	want.GroupRestarts = t.Restarted.Total()
	want.Replicas, want.ReadyReplicas, want.UpdatedReplicas = 0, t.Ready, t.Updated
	if owner := lws.OwnerOf(t.StatefulSet.Own(), t.Deployment.Own()); owner != nil {
		want.Replicas = owner.Has
	}
	if want.HPAPodSelector == "" {
		want.HPAPodSelector = fmt.Sprintf("%s=%s,%s=%s", lwsv1.SetNameLabelKey, t.Set.Name, lwsv1.WorkerIndexLabelKey, workload.LeaderIndex)
	}
	want.ObservedGeneration = t.Set.Generation
	wanted := append(status.Wanted(t.Set.Status.Conditions, progress(t), notices(t)), scheduling.Of(t).Conditions()...)
	wanted = append(wanted, ready(t, wanted)...)
	want.Conditions = status.Merge(want.Conditions, wanted, t.Set.Generation, t.Now)
	return want
}

// statusEvents reports progress, and waits that begin and end.
func statusEvents(t *table.Table, want *lwsv1.LeaderWorkerSetStatus, progressed bool) []action.Event {
	var events []action.Event
	if first := progress(t)[0]; progressed && t.Waiting.Message == "" &&
		!slices.Contains([]string{lws.CodeRefused, lws.CodeBudgetExceeded, lws.CodeProgressDeadlineExceeded, t.Delay.Code, t.Unresolved.Code}, first.Reason) { // reported with their writes
		note := fmt.Sprintf("%s, with %d groups ready of total %d groups", first.Message, want.ReadyReplicas, workload.Replicas(t.Set))
		events = append(events, lws.Event(first.Reason, "Update", note, nil))
	}
	if t.Deadline.IsOver && t.Deadline.Told == "" {
		events = append(events, *lws.Warning(lws.CodeProgressDeadlineExceeded, "Wait", lateText(t), nil))
	}
	return slices.Concat(events, waitEvents(t), noticeEvents(t))
}

// waitEvents compares the wait as it is with the wait as it was last written.
func waitEvents(t *table.Table) []action.Event {
	before, waited := condition.Of(t.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	waited = waited && before.Status == metav1.ConditionTrue && before.Reason == lws.CodePreviousIncarnation
	switch {
	case t.Waiting.Stuck && before.Message != t.Waiting.Message:
		return []action.Event{*lws.Warning(CodePreviousStuck, "Wait", t.Waiting.Message, nil)}
	case t.Waiting.Message != "" && !waited:
		return []action.Event{{Reason: lws.CodePreviousIncarnation, Action: "Wait", Note: t.Waiting.Message}}
	case t.Waiting.Message == "" && waited:
		return []action.Event{{Reason: "PreviousIncarnationGone", Action: "Wait", Note: "the previous incarnation is gone"}}
	}
	return nil
}

// CodeNameTooLong is the reason while the name of a set leaves no room for the labels of its pods.
const CodeNameTooLong = "NameTooLong"

// CodePreviousStuck is the reason while an object of a previous incarnation does not leave.
const CodePreviousStuck = "PreviousIncarnationStuck"

// unsupportedAgain is how often such a set is read again: no event tells when another
// implementation's objects are gone.
const unsupportedAgain = 30 * time.Second

// ready returns the conditions that tools judge a set by. A set is Ready while it is Available and no update
// is in progress. Else it is Stalled if it waits for what only a person can change, or its progress deadline is over, and
// Reconciling if not.
//
// They follow from the other conditions and the counts: no status is written for them alone.
func ready(t *table.Table, wanted []metav1.Condition) []metav1.Condition {
	available, _ := condition.Of(wanted, string(lwsv1.LeaderWorkerSetAvailable))
	if available.Status == metav1.ConditionTrue && !condition.IsTrue(wanted, string(lwsv1.LeaderWorkerSetUpdateInProgress)) {
		return []metav1.Condition{status.Holding(lwsv1.LeaderWorkerSetReady, available.Reason, available.Message)}
	}
	if t.Deadline.IsOver {
		return status.Unready(lwsv1.LeaderWorkerSetStalled, lws.CodeProgressDeadlineExceeded, lateText(t))
	}
	if reason, message := stalled(t); reason != "" {
		return status.Unready(lwsv1.LeaderWorkerSetStalled, reason, message)
	}
	reason, message := reconciling(t, wanted)
	return status.Unready(lwsv1.LeaderWorkerSetReconciling, reason, message)
}

// reconciling returns what controllers work on.
func reconciling(t *table.Table, wanted []metav1.Condition) (reason, message string) {
	usual := status.Usual(lwsv1.LeaderWorkerSetProgressing)
	progressing, _ := condition.Of(wanted, usual.Type)
	updating, _ := condition.Of(wanted, string(lwsv1.LeaderWorkerSetUpdateInProgress))
	switch {
	case updating.Status == metav1.ConditionTrue && updating.Reason == lws.CodePaused:
		return updating.Reason, updating.Message
	case progressing.Status == metav1.ConditionTrue && progressing.Reason != usual.Reason && progressing.Reason != t.Delay.Code:
		return progressing.Reason, progressing.Message
	}
	for _, n := range notices(t) {
		if n.Says != "" && n.Kind != ConditionBudgetMissing && n.Kind != lws.CodeSchedulingGated { // no group waits for it, or it is the delay
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
		t.Ready, workload.Replicas(t.Set), t.Updated)
}

// stalled returns what only a person can change, or nothing: a rule or a right, another object, the
// spec. Pods, nodes, schedulers and webhooks may yet become ready, and a pause is a wish.
func stalled(t *table.Table) (reason, message string) {
	lasts := func(r action.Refused) bool { return !r.Passes }
	switch {
	case t.RefusalText != "" && !t.Refusal.Passes:
		return lws.CodeRefused, t.RefusalText
	case t.Waiting.Stuck:
		return CodePreviousStuck, t.Waiting.Message
	case t.Conflict != "":
		return lws.CodeNameConflict, t.Conflict
	case workload.IsNameTooLong(t.Set):
		return CodeNameTooLong, fmt.Sprintf("the name has %d characters, and %d groups allow %d; scale the set down, or create it under a shorter name",
			len(t.Set.Name), workload.Replicas(t.Set), workload.NameLimit(t.Set))
	case len(t.ExhaustedBy) > 0 && !t.RollsExhausted():
		return lws.CodeBudgetExceeded, degradedText(t)
	case t.OtherClaims != "" && t.IsPending && !lws.Paused(t.Set):
		return lws.CodeVolumeClaimsDiffer, t.OtherClaims
	case t.Unresolved.Code == lws.CodeNotHeadless:
		return lws.CodeNotHeadless, t.Unresolved.Sentence
	case slices.ContainsFunc(t.Refused, lasts):
		return lws.CodeRefused, t.Hindrance
	}
	return "", ""
}

// Stand returns the progress of a set.
func Stand(w lws.SetSnapshot) lws.Standing {
	t, _ := table.Of(w, leaders.New)
	t.Conditions = w.Set.Status.Conditions
	return t.Standing
}

// Roll returns what the rollout of a set does until it ends. It is empty for a set that is left alone or is being deleted.
func Roll(w lws.SetSnapshot) table.Roll {
	if w.Set.DeletionTimestamp != nil || len(w.Beyond) > 0 {
		return table.Roll{}
	}
	t, _ := table.Of(w, leaders.New)
	return t.Roll()
}

// leftAlone writes nothing for a set but its condition with an event, and the conditions that tools
// judge it by. To ignore a field would run the set as its user did not ask.
func leftAlone(w *lws.SetSnapshot) (p lws.Plan) {
	text := action.UnsupportedText(w.Beyond)
	p.Await(w.Now.Add(unsupportedAgain), lws.CodeUnsupported, text)
	told, _ := condition.Of(w.Set.Status.Conditions, lws.CodeUnsupported)
	want := *w.Set.Status.DeepCopy()
	want.ObservedGeneration = w.Set.Generation
	wanted := append(status.Unready(lwsv1.LeaderWorkerSetStalled, lws.CodeUnsupported, text), status.Holding(lws.CodeUnsupported, "UnknownFields", text))
	want.Conditions = status.Kept(want.Conditions, wanted)
	for _, c := range wanted {
		c.ObservedGeneration, c.LastTransitionTime = w.Set.Generation, metav1.NewTime(w.Now)
		meta.SetStatusCondition(&want.Conditions, c)
	}
	if equality.Semantic.DeepEqual(w.Set.Status, want) {
		return p
	}
	write := action.WriteStatus{Object: lws.SetRef(w.Set), Status: &lwsv1.LeaderWorkerSet{Status: want}, Because: lws.Because(lws.CodeUnsupported, text)}
	if told.Status != metav1.ConditionTrue || told.Message != text {
		write.Tell.Done = []action.Event{*lws.Warning(lws.CodeUnsupported, "Wait", text, nil)}
	}
	p.Do(write)
	return p
}
