package set

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/scheduling"
	"lockstep.dev/lockstep/internal/lws/status"
	"lockstep.dev/lockstep/internal/lws/table"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// progress returns the conditions about progress that say something, the one that tells most first.
// An update stays in progress until the set is available.
func progress(t *table.Table) []metav1.Condition {
	if len(t.ExhaustedBy) > 0 || t.Deadline.IsOver {
		return degraded(t, usualProgress(t))
	}
	return usualProgress(t)
}

// usualProgress ignores stopped groups. The condition Progressing has what the set waits for, if anything. So has an
// Available that is False while all groups are ready.
func usualProgress(t *table.Table) []metav1.Condition {
	usual, available := status.Usual(lwsv1.LeaderWorkerSetProgressing), status.Usual(lwsv1.LeaderWorkerSetAvailable)
	why := cmp.Or(
		saying(lws.CodeRefused, t.RefusalText), saying(lws.CodePreviousIncarnation, t.Waiting.Message),
		saying(lws.CodePaused, t.PauseText()), t.Unresolved, saying(lws.CodeRefused, t.Hindrance),
	)
	if why.Code == "" && t.Delay.Code != "" {
		why = delayed(t)
	}
	why = cmp.Or(why, lws.Because(usual.Reason, usual.Message))
	found := progressOfUpdate(t, status.Holding(lwsv1.LeaderWorkerSetProgressing, why.Code, why.Sentence), available)
	_, isTold := condition.Of(t.Set.Status.Conditions, available.Type)
	_, isAvailable := condition.Of(found, available.Type)
	isReady := t.WantedReady == workload.Replicas(t.Set)
	switch {
	case !isTold || isAvailable:
		return found
	case t.Unresolved.Code != "":
		why = t.Unresolved
	case !isReady || t.TargetReady < t.Current || why.Code == usual.Reason:
		return found
	}
	return append(found, status.Ceased(status.Holding(available.Type, why.Code, why.Sentence)))
}

// saying is a reason, or nothing without a sentence.
func saying(code, sentence string) (r action.Reason) {
	if sentence != "" {
		r = lws.Because(code, sentence)
	}
	return r
}

// progressOfUpdate says whether the set is available, and whether an update runs.
func progressOfUpdate(t *table.Table, progressing, available metav1.Condition) []metav1.Condition {
	updating := status.Usual(lwsv1.LeaderWorkerSetUpdateInProgress)
	stopped := t.RefusalText != "" || t.Waiting.Message != ""
	switch {
	case progressing.Reason == lws.CodePaused:
		updating.Reason, updating.Message = progressing.Reason, progressing.Message
		if serves(t) {
			return []metav1.Condition{updating, available}
		}
		return []metav1.Condition{updating, progressing}
	case !stopped && (t.TargetUpdated < t.Current || t.RollsExhausted()):
		if serves(t) && !t.Now.Before(stillFrom(t)) {
			return []metav1.Condition{updating, available}
		}
		return []metav1.Condition{updating, progressing}
	case serves(t) && t.TargetReady == t.Current:
		if progressing.Reason == lws.CodeRefused { // to an object that no group waits for, such as a Service
			return []metav1.Condition{available, status.Ceased(progressing)}
		}
		return []metav1.Condition{available}
	case t.Unresolved.Code != "": // its groups may be up to date
		return []metav1.Condition{progressing}
	case condition.IsTrue(t.Set.Status.Conditions, updating.Type):
		return []metav1.Condition{progressing, updating}
	}
	return []metav1.Condition{progressing}
}

// serves reports whether every wanted group is ready, and workers resolve their leaders. Surge groups do not count.
func serves(t *table.Table) bool {
	return t.Unresolved.Code == "" && t.RefusalText == "" && t.Waiting.Message == "" && !t.Held && !t.Unobserved && t.WantedReady == workload.Replicas(t.Set)
}

// stillAfter is how long a rollout takes no step until its set is Available again: the condition does not
// change with each step.
const stillAfter = time.Minute

// stillFrom is when a rollout that has every wanted group ready counts as still: a minute after it took its first step,
// or after a pod became ready.
func stillFrom(t *table.Table) time.Time {
	told, _ := condition.Of(t.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetAvailable))
	isUpdating := condition.IsTrue(t.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetUpdateInProgress))
	switch {
	case t.Rollout.Changed || t.Rollout.Lowers(t.Course), told.Status != metav1.ConditionFalse && !isUpdating:
		return t.Now.Add(stillAfter)
	case told.Status != metav1.ConditionFalse:
		return t.Now // it was still before
	}
	last := told.LastTransitionTime.Time
	for i := range t.Rows {
		for _, pod := range t.Rows[i].AllPods() {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodReady && c.LastTransitionTime.After(last) {
					last = c.LastTransitionTime.Time
				}
			}
		}
	}
	return last.Add(stillAfter)
}

// delayed says why groups are delayed. The sentence changes only with the counts: the pods of many groups may wait, and
// each one that stops waiting would cost a write.
func delayed(t *table.Table) action.Reason {
	have := &t.SetSnapshot.Set.Status
	told, _ := condition.Of(have.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	if told.Status == metav1.ConditionTrue && told.Reason == t.Delay.Code && have.ObservedGeneration == t.Set.Generation && have.ReadyReplicas == t.Ready && have.UpdatedReplicas == t.Updated {
		return lws.Because(told.Reason, told.Message)
	}
	return lws.Because(t.Delay.Code, t.Delay.Message)
}

// lateText says since when there was no progress, and why. It changes with the counts only: each change is a write.
func lateText(t *table.Table) string {
	have := &t.SetSnapshot.Set.Status
	if t.Deadline.Told != "" && have.ReadyReplicas == t.Ready && have.UpdatedReplicas == t.Updated {
		return t.Deadline.Told
	}
	return fmt.Sprintf("%d of %d groups are ready and %d up to date, without progress since %s: %s",
		t.Ready, workload.Replicas(t.Set), t.Updated, t.Deadline.Since.UTC().Format(time.RFC3339), obstacle(t))
}

// obstacle is what a set waits for, in words: a refusal or another object, what other controllers cannot do, or a group.
func obstacle(t *table.Table) string {
	_, lasting := stalled(t)
	held := ptr.Deref(ptr.Deref(t.Limit, table.Limit{}).Hold, lws.Wait{}).Sentence
	text := cmp.Or(lasting, t.RefusalText, t.Waiting.Message, t.Unresolved.Sentence, t.Hindrance, t.Delay.Message, held)
	if text != "" {
		return text
	}
	text = "groups are missing"
	if i := slices.IndexFunc(t.Rows, func(r table.Row) bool { return !r.IsReady }); i >= 0 {
		text = fmt.Sprintf("group %s is not ready", t.Rows[i].Name())
	}
	if t.TargetUpdated < t.Current && t.Down >= t.Budget {
		text += fmt.Sprintf(", and the rollout replaces no other: %d may be down by maxUnavailable and maxSurge, and %d are", t.Budget, t.Down)
	}
	return fmt.Sprintf("%s; see: kubectl lockstep status %s -n %s", text, t.Set.Name, t.Set.Namespace)
}

// notices are what users are told beside the progress of a set.
func notices(t *table.Table) []status.Notice {
	lacks := ptr.Deref(t.Limit, table.Limit{}).Lacks
	gated := map[bool]string{true: "pods wait behind scheduling gates"}[t.Delay.IsGated && workload.ProgressDeadline(t.Set, t.ProgressDeadline) > 0]
	return []status.Notice{
		{ // it says something only in leftAlone
			Kind: lws.CodeUnsupported, OverReason: "Supported", Over: "this version of Lockstep knows all that the set has", Ended: "Supported",
		},
		{
			Kind: lws.CodeGangSchedulerMissing, Says: scheduling.Of(t).Missing(), Again: scheduling.GangLook,
			OverReason: "GangSchedulerFound", Over: "the gang scheduler of this set is there", Ended: "GangSchedulerFound",
		},
		{
			Kind: string(lwsv1.LeaderWorkerSetDegraded), Reason: lws.CodeBudgetExceeded, Says: degradedText(t), OverReason: "AsExpected",
			Over: "No replica has exhausted its restart budget", Standing: t.Set.Spec.LeaderWorkerTemplate.MaxGroupRestarts != nil, Told: true,
		},
		{
			Kind: ConditionBackoff, Reason: "GroupsFailing", Says: backoffText(t),
			OverReason: "NoGroupWaits", Over: "no group waits to be recreated",
		},
		{
			Kind: ConditionUnrecorded, Reason: "DefinitionTooOld", Says: pruned(t), Again: prunedAgain,
			OverReason: "DefinitionHasFields", Over: "the API server keeps the fields of the status that restarts need",
		},
		{ // when it ended tells a process that starts how long ago the rollout was resumed
			Kind: lws.CodePaused, Says: t.PauseText(), OverReason: "RolloutNotPaused", Over: "no rollout is paused", Told: true,
		},
		{ // when it ended tells from when on the progress deadline counts
			Kind: lws.CodeSchedulingGated, Says: gated, OverReason: "NoPodGated", Over: "no pod waits behind a scheduling gate", Told: true,
		},
		{
			Kind: lws.CodeVolumeClaimsDiffer, Says: t.OtherClaims,
			OverReason: "VolumeClaimsAsMade", Over: "the claims of the spec are those that the set was made with",
		},
		{
			Kind: lws.CodeNameConflict, Says: t.Conflict, Again: lws.ConflictLook,
			OverReason: "NoNameConflict", Over: "every name this set needs is its own or free", Ended: "NameConflictResolved",
		},
		{
			Kind: ConditionBudgetMissing, Reason: lacks.Code, Says: lacks.Sentence, Again: lws.ConflictLook,
			OverReason: "DisruptionBudgetFound", Over: "nothing keeps this set from the PodDisruptionBudget that it asks for", Ended: "DisruptionBudgetFound",
		},
	}
}

// awaitEnds waits for the end of all that is noticed, and of what keeps the set from progress.
func awaitEnds(t *table.Table) (p lws.Plan) {
	if t.RefusalText != "" {
		p.Await(t.Refusal.Again(), lws.CodeRefused, t.RefusalText)
	}
	if t.Hindrance != "" {
		p.Await(time.Time{}, lws.CodeRefused, t.Hindrance)
	}
	if t.PauseText() == "" && t.TargetUpdated < t.Current && serves(t) {
		if from := stillFrom(t); t.Now.Before(from) {
			p.Await(from, lws.CodeRollout, "every wanted group is ready, and the rollout takes its next step")
		}
	}
	if !lws.Paused(t.Set) && t.HoldsRollout() {
		p.Await(t.Resumes(), lws.CodePaused, "the rollout was resumed and replaces no group for another moment")
	}
	if t.Delay.Code != "" || t.Delay.IsNear {
		p.Await(t.Now.Add(lws.DelayAfter), cmp.Or(t.Delay.Code, lws.CodeUnschedulable), cmp.Or(t.Delay.Message, "pods have no node yet"))
	}
	if t.Now.Before(t.Deadline.At) {
		p.Await(t.Deadline.At, lws.CodeProgressDeadline, "without progress the set is reported as failed then")
	}
	for _, n := range notices(t) {
		if n.Says == "" || n.Kind == lws.CodeSchedulingGated { // the delay is waited for
			continue
		}
		var again time.Time
		if n.Again > 0 {
			again = t.Now.Add(n.Again)
		}
		p.Await(again, n.Kind, n.Says)
	}
	return p
}

// noticeEvents reports what begins, what is said anew, and ends.
func noticeEvents(t *table.Table) []action.Event {
	var events []action.Event
	for _, n := range notices(t) {
		told, _ := condition.Of(t.Set.Status.Conditions, n.Kind)
		was := condition.IsTrue(t.Set.Status.Conditions, n.Kind)
		switch {
		case n.Told:
		case n.Says != "" && (!was || told.Message != n.Says):
			events = append(events, action.Event{Warning: true, Reason: n.Kind, Action: "Wait", Note: n.Says})
		case n.Says == "" && was && n.Ended != "":
			events = append(events, action.Event{Reason: n.Ended, Action: "Wait", Note: n.Over})
		}
	}
	return events
}

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

const pruningText = "the installed CustomResourceDefinition drops status.started, status.restarts and status.restartsSince: " +
	"failed groups are not recreated; install the present definition with: lockstep install"

// degradedText names the groups that were stopped, or is empty.
func degradedText(t *table.Table) string {
	says := func(index int) string { return lws.ExhaustedText(t.Set, t.ExhaustedBy[index]) }
	return lws.Spelt(slices.Sorted(maps.Keys(t.ExhaustedBy)), says, "; ")
}

// degraded returns the conditions about progress while groups are stopped, or the progress deadline is over. It is False
// that the set progresses, unless something beside stopped groups does.
func degraded(t *table.Table, progress []metav1.Condition) []metav1.Condition {
	if t.Deadline.IsOver {
		over := status.Ceased(status.Holding(lwsv1.LeaderWorkerSetProgressing, lws.CodeProgressDeadlineExceeded, lateText(t)))
		return append([]metav1.Condition{over}, slices.DeleteFunc(progress, func(c metav1.Condition) bool { return c.Type == over.Type })...)
	}
	says := func(kind lwsv1.LeaderWorkerSetConditionType, message string) metav1.Condition {
		return status.Ceased(status.Holding(kind, lws.CodeBudgetExceeded, message))
	}
	if condition.IsTrue(progress, string(lwsv1.LeaderWorkerSetAvailable)) { // only surge groups were stopped
		return progress
	}
	unavailable := says(lwsv1.LeaderWorkerSetAvailable, "Not all replicas are ready")
	if t.WantedReady == workload.Replicas(t.Set) {
		unavailable.Message = "Not all replicas are up to date"
	}
	still := says(lwsv1.LeaderWorkerSetUpdateInProgress, "No rolling update is in progress")
	isWhole := t.WantedReady+t.States[lws.GroupExhausted] == workload.Replicas(t.Set) && t.TargetReady == t.Current
	stops := t.RefusalText == "" && t.Hindrance == "" && !t.Held && t.Waiting.Message == "" && t.PauseText() == ""
	if isWhole && stops && !t.RollsExhausted() {
		return []metav1.Condition{says(lwsv1.LeaderWorkerSetProgressing, "Automatic recovery is stopped for one or more replicas"), unavailable, still}
	}
	if condition.IsTrue(progress, still.Type) {
		return append(progress, unavailable)
	}
	return append(progress, unavailable, still)
}

// pruned returns a message if the API server drops fields of the status, or is empty: the
// status was written here for this generation, and restartsSince is not in it.
func pruned(t *table.Table) string {
	owner := t.LeadersOwner()
	if restart.Recreates(t.Live) && t.Set.Status.RestartsSince == nil && t.Set.Status.ObservedGeneration == t.Live.Generation &&
		owner != nil && metav1.IsControlledBy(owner, t.Set) && owner.GetAnnotations()[lws.AppliedAnnotationKey] != "" {
		return pruningText
	}
	return ""
}

// backoffText names the failed groups whose restart waits for the back-off, or is empty.
func backoffText(t *table.Table) string {
	says := func(r table.Row) string { return r.Decision.BackoffText(t.Live, r.Name()) }
	hasNoBackoff := func(r table.Row) bool { return r.Decision == nil || says(r) == "" }
	return lws.Spelt(slices.DeleteFunc(slices.Clone(t.Rows), hasNoBackoff), says, "; ")
}
