package lws

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws/status"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// wantedConditions returns every condition whose place in the status is to change.
func (d *setDecision) wantedConditions() []metav1.Condition {
	return append(status.Wanted(d.Set.Status.Conditions, d.progress(), d.notices()), d.workloadCreated()...)
}

// progress returns the conditions about progress that say something, the one that tells most first.
// An update stays in progress until the set is available.
func (d *setDecision) progress() []metav1.Condition {
	if len(d.exhaustedBy) > 0 {
		return d.degraded(d.usualProgress())
	}
	return d.usualProgress()
}

// usualProgress ignores stopped groups. It gives the reason of an Available that is False while all groups are ready.
func (d *setDecision) usualProgress() []metav1.Condition {
	progressing, available := d.progressing(), status.Usual(lwsv1.LeaderWorkerSetAvailable)
	found := d.progressOfUpdate(progressing, available)
	_, isTold := condition.Of(d.Set.Status.Conditions, available.Type)
	_, isAvailable := condition.Of(found, available.Type)
	why, isReady := action.Reason{Code: progressing.Reason, Sentence: progressing.Message}, d.wantedReady == workload.Replicas(d.Set)
	switch {
	case !isTold || isAvailable:
		return found
	case d.unresolved.Code != "":
		why = d.unresolved
	case !isReady || d.TargetReady < d.current || why.Code == status.Usual(lwsv1.LeaderWorkerSetProgressing).Reason:
		return found
	}
	return append(found, status.Ceased(status.Holding(available.Type, why.Code, why.Sentence)))
}

// progressOfUpdate says whether the set is available, and whether an update runs.
func (d *setDecision) progressOfUpdate(progressing, available metav1.Condition) []metav1.Condition {
	updating := status.Usual(lwsv1.LeaderWorkerSetUpdateInProgress)
	stopped := d.refusal != "" || d.waiting.any()
	switch {
	case progressing.Reason == CodePaused:
		updating.Reason, updating.Message = progressing.Reason, progressing.Message
		if d.serves() {
			return []metav1.Condition{updating, available}
		}
		return []metav1.Condition{updating, progressing}
	case !stopped && (d.TargetUpdated < d.current || d.rollsExhausted()):
		if d.serves() && !d.Now.Before(d.stillFrom()) {
			return []metav1.Condition{updating, available}
		}
		return []metav1.Condition{updating, progressing}
	case d.serves() && d.TargetReady == d.current:
		if progressing.Reason == CodeRefused { // to an object that no group waits for, such as a Service
			return []metav1.Condition{available, status.Ceased(progressing)}
		}
		return []metav1.Condition{available}
	case d.unresolved.Code != "": // its groups may be up to date
		return []metav1.Condition{progressing}
	case condition.IsTrue(d.Set.Status.Conditions, updating.Type):
		return []metav1.Condition{progressing, updating}
	}
	return []metav1.Condition{progressing}
}

// serves reports whether every wanted group is ready, and workers resolve their leaders. Surge groups do not count.
func (d *setDecision) serves() bool {
	return d.unresolved.Code == "" && d.refusal == "" && !d.waiting.any() && !d.held && !d.unobserved && d.wantedReady == workload.Replicas(d.Set)
}

// stillAfter is how long a rollout takes no step until its set is Available again: the condition does not
// change with each step.
const stillAfter = time.Minute

// stillFrom is when a rollout that has every wanted group ready counts as still: a minute after it took its first step,
// or after a pod became ready.
func (d *setDecision) stillFrom() time.Time {
	told, _ := condition.Of(d.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetAvailable))
	isUpdating := condition.IsTrue(d.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetUpdateInProgress))
	switch {
	case d.rollout.Changed || d.rollout.Lowers(d.course), told.Status != metav1.ConditionFalse && !isUpdating:
		return d.Now.Add(stillAfter)
	case told.Status != metav1.ConditionFalse:
		return d.Now // it was still before
	}
	last := told.LastTransitionTime.Time
	for i := range d.rows {
		for _, pod := range d.rows[i].pods() {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodReady && c.LastTransitionTime.After(last) {
					last = c.LastTransitionTime.Time
				}
			}
		}
	}
	return last.Add(stillAfter)
}

// progressing is the condition Progressing with what the set waits for, if anything.
func (d *setDecision) progressing() metav1.Condition {
	paused := d.pauseText()
	switch {
	case d.refusal != "":
		return status.Holding(lwsv1.LeaderWorkerSetProgressing, CodeRefused, d.refusal)
	case d.waiting.any():
		return status.Holding(lwsv1.LeaderWorkerSetProgressing, CodePreviousIncarnation, d.waiting.message)
	case paused != "":
		return status.Holding(lwsv1.LeaderWorkerSetProgressing, CodePaused, paused)
	case d.unresolved.Code != "":
		return status.Holding(lwsv1.LeaderWorkerSetProgressing, d.unresolved.Code, d.unresolved.Sentence)
	case d.hindrance != "":
		return status.Holding(lwsv1.LeaderWorkerSetProgressing, CodeRefused, d.hindrance)
	case d.delay.code != "":
		return d.delayed()
	}
	return status.Usual(lwsv1.LeaderWorkerSetProgressing)
}

// delayed is the condition Progressing while groups are delayed. The message is written with the counts alone: pods
// of many groups wait, and each that ceases to would be a write.
func (d *setDecision) delayed() metav1.Condition {
	have := &d.SetSnapshot.Set.Status
	told, _ := condition.Of(have.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	if told.Status == metav1.ConditionTrue && told.Reason == d.delay.code && have.ObservedGeneration == d.Set.Generation && have.ReadyReplicas == d.Ready && have.UpdatedReplicas == d.Updated {
		return status.Holding(lwsv1.LeaderWorkerSetProgressing, told.Reason, told.Message)
	}
	return status.Holding(lwsv1.LeaderWorkerSetProgressing, d.delay.code, d.delay.message)
}

// gangLook is how often a gang scheduler that is missing is looked for.
const gangLook = 10 * time.Second

// notices are what users are told beside the progress of a set.
func (d *setDecision) notices() []status.Notice {
	return []status.Notice{
		{ // it says something only in leftAlone
			Kind: CodeUnsupported, OverReason: "Supported", Over: "this version of Lockstep knows all that the set has", Ended: "Supported",
		},
		{
			Kind: CodeGangSchedulerMissing, Says: d.volcanoMissing(), Again: gangLook,
			OverReason: "GangSchedulerFound", Over: "the gang scheduler of this set is there", Ended: "GangSchedulerFound",
		},
		{
			Kind: string(lwsv1.LeaderWorkerSetDegraded), Reason: CodeBudgetExceeded, Says: d.degradedText(), OverReason: "AsExpected",
			Over: "No replica has exhausted its restart budget", Standing: d.Set.Spec.LeaderWorkerTemplate.MaxGroupRestarts != nil, Told: true,
		},
		{
			Kind: ConditionBackoff, Reason: "GroupsFailing", Says: d.backoffText(),
			OverReason: "NoGroupWaits", Over: "no group waits to be recreated",
		},
		{
			Kind: ConditionUnrecorded, Reason: "DefinitionTooOld", Says: d.pruned(), Again: prunedAgain,
			OverReason: "DefinitionHasFields", Over: "the API server keeps the fields of the status that restarts need",
		},
		{ // when it ended tells a process that starts how long ago the rollout was resumed
			Kind: CodePaused, Says: d.pauseText(), OverReason: "RolloutNotPaused", Over: "no rollout is paused", Told: true,
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

// tell waits for the end of all that is noticed, and of what keeps the set from progress.
func (d *setDecision) tell() (p Plan) {
	if d.refusal != "" {
		p.await(d.Refusal.Again(), CodeRefused, d.refusal)
	}
	if d.hindrance != "" {
		p.await(time.Time{}, CodeRefused, d.hindrance)
	}
	if d.pauseText() == "" && d.TargetUpdated < d.current && d.serves() {
		if from := d.stillFrom(); d.Now.Before(from) {
			p.await(from, CodeRollout, "every wanted group is ready, and the rollout takes its next step")
		}
	}
	if !Paused(d.Set) && d.holdsRollout() {
		p.await(d.resumes(), CodePaused, "the rollout was resumed and replaces no group for another moment")
	}
	if d.delay.code != "" || d.delay.isNear {
		p.await(d.Now.Add(DelayAfter), cmp.Or(d.delay.code, CodeUnschedulable), cmp.Or(d.delay.message, "pods have no node yet"))
	}
	for _, n := range d.notices() {
		if n.Says == "" {
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

// noticeEvents reports what begins, what is said anew, and ends.
func (d *setDecision) noticeEvents() []action.Event {
	var events []action.Event
	for _, n := range d.notices() {
		told, _ := condition.Of(d.Set.Status.Conditions, n.Kind)
		was := condition.IsTrue(d.Set.Status.Conditions, n.Kind)
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
