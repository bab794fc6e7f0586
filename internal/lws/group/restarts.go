package group

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/revision"
)

// recreateFailed recreates a group that failed: it writes the decision onto the leader, then deletes the whole group.
//
// A crash between the two writes loses nothing: the next reconcile finds the annotation. Where the set
// has maxGroupRestarts, the status counts the restart in between.
func recreateFailed(g *input) (p lws.Plan, next bool) {
	switch {
	case g.Leader == nil:
		p = endLeaving(g)
		return p, p.Needs == ""
	case lws.IsExhausted(g.Leader):
		return stop(g, false), false
	case !restart.Recreates(g.Set) && !restart.IsRequested(g.Leader):
		return p, true
	}
	decision := restart.Of(g.Set, g.Leader)
	if decision == nil {
		failure := g.pods(g.Leader).Failure(g.Now)
		if failure == nil {
			return p, true
		}
		switch recreates, need := g.recreates(g.Leader); {
		case !recreates:
			return lws.Plan{Needs: need}, need == ""
		case g.lacksLiveRead():
			return lws.Plan{Needs: lws.NeedLivePods}, false
		}
		if decision = g.pods(g.Leader).Decide(failure, g.Now); decision.Exhausted {
			return exhaust(g, decision), false
		}
		p.Do(g.note(g.Leader, decision))
	}
	if until := decision.Due(g.Set); g.Now.Before(until.Time) && !restart.IsRequested(g.Leader) {
		p.Await(until.Time, lws.CodeBackoff, decision.BackoffText(g.Set, g.Name()))
		return p, false
	}
	if decision.RenewsHold(g.Now) {
		p.Do(g.note(g.Leader, decision))
	}
	if !restart.IsCounted(g.Set, g.Index, decision) {
		p.Await(time.Time{}, lws.CodeRestart, fmt.Sprintf("group %s is recreated once the status counts it", g.Name()))
		return p, false
	}
	return deleteGroup(g, g.Leader, decision, p, g.recreation()), false
}

// lacksLiveRead reports whether the group must be read live before it is recreated. A group of one pod is judged by its
// leader alone, and the decision is written at the version of it that was judged.
func (g *input) lacksLiveRead() bool {
	return !g.Live && (g.Leader.Annotations[lwsv1.SizeAnnotationKey] != "1" || g.Set.Spec.LeaderWorkerTemplate.MaxGroupRestarts != nil)
}

// endLeaving ends the workers of a leader that failed and is terminating, and keeps the evidence on
// it. Leaders that are scaled away or rolled end as podTerminationPolicy says.
func endLeaving(g *input) (p lws.Plan) {
	if !g.endsAtOnce() {
		return endInParallel(g)
	}
	if restart.Of(g.Set, g.Leaving) == nil {
		recreates, need := g.recreates(g.Leaving)
		if need != "" {
			return lws.Plan{Needs: need}
		}
		if group := g.pods(g.Leaving); recreates {
			p.Do(g.note(g.Leaving, group.Decide(group.FailureOfLeader(g.Now), g.Now)))
		}
	}
	return deleteGroup(g, g.Leaving, nil, p, g.recreation())
}

// endsAtOnce reports whether workers end together with their terminating leader because it
// failed: it is neither scaled away nor rolled, and its dependents are not orphaned.
func (g *input) endsAtOnce() bool {
	owned := g.LeaderSet != nil || g.Deployment != nil
	if !restart.Recreates(g.Set) || g.Leaving == nil || !owned || slices.Contains(g.Leaving.Finalizers, metav1.FinalizerOrphanDependents) {
		return false // the next leader adopts the workers
	}
	return g.hasFailed()
}

// recreates reports whether the policy of the leader's revision recreates the group now: a change of the policy rolls the
// groups and holds for each from then on, and None alone holds at once for all. It needs the revision. No policy forbids
// what a user asks for.
func (g *input) recreates(leader *corev1.Pod) (yes bool, need lws.Need) {
	if restart.IsRequested(leader) {
		return true, ""
	}
	key, started := leader.Labels[lwsv1.RevisionKey], restart.HasStarted(g.Set, g.Index, leader)
	if !g.Sought && !revision.Knows(g.Revisions, g.Set.Name, key) {
		if leader == g.Leader && g.lacksLiveRead() && (started || !restart.ForgivesStart(g.Set, g.Set.Spec.LeaderWorkerTemplate.RestartPolicy, leader)) {
			return false, lws.NeedLivePods // which the next decision would ask for
		}
		return false, lws.NeedRevision
	}
	policy := revision.PolicyAt(g.Set, g.Revisions, key)
	return restart.RecreatesBy(policy) && (started || !restart.ForgivesStart(g.Set, policy, leader)), ""
}

// note writes the decision onto the leader.
func (g *input) note(leader *corev1.Pod, decision *restart.Decision) action.Annotate {
	tell := action.Telling{Failures: failures(decision)}
	if leader.DeletionTimestamp != nil { // no deletion of ours follows
		tell.Done = g.recreated(leader, decision)
	}
	return action.Annotate{
		Object:      identity.RefOf(identity.KindPod, leader),
		Annotations: map[string]string{restart.AnnotationKey: decision.Annotation()},
		Because:     lws.Because(lws.CodeRestart, g.failed(decision)), Tell: tell,
	}
}

func (g *input) failed(decision *restart.Decision) string {
	return fmt.Sprintf("group %s failed: %s", g.Name(), decision.Text())
}

// failures are none of a decision that was read from its leader: they were told when it was made.
func failures(decision *restart.Decision) []action.Failure {
	if decision.Code == "" {
		return nil
	}
	return []action.Failure{{Code: decision.Code, ExitCode: decision.ExitCode}}
}

// exhaust marks a leader whose group failed once too often, and ends the group. The leader goes
// first: whatever ends in between, the mark says what is left to do.
func exhaust(g *input, decision *restart.Decision) (p lws.Plan) {
	p.Do(action.SetFinalizers{
		Object:     identity.RefOf(identity.KindPod, g.Leader),
		Finalizers: append(slices.Clone(g.Leader.Finalizers), lwsv1.GroupRestartBudgetFinalizer),
		Annotations: map[string]string{
			restart.AnnotationKey:                          decision.Annotation(),
			lwsv1.GroupRestartBudgetExhaustedAnnotationKey: "true",
			lwsv1.RecoverAnnotationKey:                     "", // one from before does not recover the group
		},
		Because: lws.Because(lws.CodeBudgetExceeded, g.failed(decision)+", and maxGroupRestarts allows no more"),
		Tell:    action.Telling{Failures: failures(decision)},
	})
	p.Add(stop(g, true))
	return p
}

// stop ends a group whose leader is marked, and its pods stay without their containers. The garbage
// collector deletes the workers with their leader.
func stop(g *input, isNew bool) (p lws.Plan) {
	p = mark(g, g.Leader)
	ref := identity.RefOf(identity.KindPod, g.Leader)
	note := fmt.Sprintf("Restart budget exhausted; terminated group %s and stopped automatic recovery", g.Name())
	p.Do(action.Delete{
		Object: ref, AnyVersion: isNew, Foreground: true, Because: g.stopping(),
		Tell: action.Telling{Done: []action.Event{*lws.Warning(lws.CodeBudgetExceeded, "Delete", note, &ref)}},
	})
	return p
}

// endStopped ends what is left of a group whose leader is terminating: a user may have deleted that in another way.
func endStopped(g *input, leader *corev1.Pod) (p lws.Plan) {
	if wait, next := retainPVCs(g); !next {
		return wait
	}
	p = mark(g, leader)
	if slices.Contains(leader.Finalizers, metav1.FinalizerDeleteDependents) && len(g.unowned(leader)) == 0 {
		return // the garbage collector deletes the rest
	}
	p.Add(deleteGroup(g, leader, nil, lws.Plan{}, g.stopping()))
	return p
}

func (g *input) stopping() action.Reason {
	return lws.Because(lws.CodeBudgetExceeded, fmt.Sprintf("group %s failed once more than maxGroupRestarts allows, and is not recreated", g.Name()))
}

// mark gives the living workers of a leader's StatefulSet the finalizer.
func mark(g *input, leader *corev1.Pod) (p lws.Plan) {
	var unmarked []*corev1.Pod
	for _, sts := range lws.WorkersOf(&g.Group, leader) {
		for _, pod := range slices.Concat(g.Pods.Owned, g.Pods.Previous) {
			if metav1.IsControlledBy(pod, sts) && pod.DeletionTimestamp == nil && !lws.IsExhausted(pod) {
				unmarked = append(unmarked, pod)
			}
		}
	}
	for _, pod := range lws.Sorted(lws.ObjectsOf(identity.KindPod, unmarked)) {
		p.Do(action.SetFinalizers{
			Object:     pod.Ref,
			Finalizers: append(slices.Clone(pod.Object.GetFinalizers()), lwsv1.GroupRestartBudgetFinalizer),
			Because:    lws.Because(lws.CodeBudgetExceeded, fmt.Sprintf("pod %s stays as evidence of why group %s failed", pod.Name, g.Name())),
		})
	}
	return p
}

// keepEvidence keeps a group that was stopped until a cause to let it go. One that is marked is not deleted yet.
func keepEvidence(g *input) (p lws.Plan, next bool) {
	if leader := cmp.Or(g.Leaving, g.Former); !lws.IsExhausted(g.Leader) && (len(g.Kept) > 0 || lws.IsExhausted(leader)) {
		return letGo(g, leader), false
	}
	return p, true
}

// letGo lets a group end that was stopped, where there is a cause.
func letGo(g *input, leader *corev1.Pod) (p lws.Plan) {
	if !lws.IsExhausted(leader) {
		return lws.Release(g.Kept, g.LeaderName, "its leader is gone")
	}
	entry := restart.Entry(g.Set, g.Index)
	switch why := g.endOfRetention(leader); {
	case why == "":
		p.Add(endStopped(g, leader))
		p.Await(g.Now.Add(lws.ConflictLook), lws.CodeBudgetExceeded, lws.ExhaustedText(g.Set, leader))
	case restart.IsRecovered(leader) && entry != nil && entry.Recreations != nil:
		p.Await(g.Now.Add(lws.ConflictLook), lws.CodeBudgetExceeded, fmt.Sprintf("group %s is recreated once its count is cleared", g.Name()))
	default:
		p.Add(endInParallel(g))
		p.Add(lws.Release(g.Kept, g.LeaderName, why, g.reliedSpec()...))
	}
	return p
}

// reliedSpec is the spec of the leader StatefulSet or Deployment as it was judged: the cache of a process that
// started just now may show an earlier one.
func (g *input) reliedSpec() []action.Standing {
	if owner := lws.OwnerOf(g.LeaderSet, g.Deployment); owner != nil {
		return []action.Standing{lws.Specified(owner.Kind, owner)}
	}
	return nil
}

// endOfRetention says why a group that was stopped may go, or is empty. A leader whose StatefulSet
// the set will adopt stays.
func (g *input) endOfRetention(leader *corev1.Pod) string {
	switch {
	case leader == g.Former && (g.FormerOwner == nil || g.FormerOwner.DeletionTimestamp != nil):
		return "its StatefulSet is gone or going"
	case leader == g.Former:
		return ""
	case g.isScaledAway():
		return "it was scaled away"
	case g.isRolled(leader):
		return "the rollout replaces it"
	case restart.IsRecovered(leader):
		return "it is recovered"
	}
	return ""
}
