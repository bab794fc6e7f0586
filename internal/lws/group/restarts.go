package group

import (
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
	case !restart.Recreates(g.Set):
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
		case restart.Exhausts(g.Set, g.Index, g.Leader, failure):
			return exhaust(g, failure), false
		}
		decision = g.decide(g.Leader, failure)
		p.Do(g.note(g.Leader, decision, failure))
	}
	if until := decision.Due(g.Set); g.Now.Before(until.Time) {
		p.Await(until.Time, lws.CodeBackoff, decision.BackoffText(g.Set, g.Index))
		return p, false
	}
	if !restart.IsCounted(g.Set, g.Index, decision) {
		p.Await(time.Time{}, lws.CodeRestart, fmt.Sprintf("group %s is recreated once the status counts it for maxGroupRestarts", g.Name()))
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
		if failure := g.pods(g.Leaving).FailureOfLeader(g.Now); recreates {
			p.Do(g.note(g.Leaving, g.decide(g.Leaving, failure), failure))
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
	if g.HasKey { // its ReplicaSet may have deleted it: no field says so
		return !g.rolled(g.Leaving) && g.failed(g.Leaving)
	}
	return !g.scaledAway() && !g.rolled(g.Leaving) && !g.wasApart()
}

// failed reports whether a terminating leader failed, and was not deleted alone.
func (g *input) failed(leader *corev1.Pod) bool {
	if restart.Of(g.Set, leader) != nil {
		return true
	}
	failure := g.pods(leader).FailureOfLeader(g.Now)
	return failure != nil && (failure.Code != restart.CodePodDeleted || failure.Disrupted)
}

// recreates reports whether the policy of the leader's revision recreates the group now: a change of the policy rolls the
// groups and holds for each from then on, and None alone holds at once for all. It needs the revision.
func (g *input) recreates(leader *corev1.Pod) (yes bool, need lws.Need) {
	key, started := leader.Labels[lwsv1.RevisionKey], restart.HasStarted(g.Set, g.Index, leader)
	if !g.Sought && !revision.Knows(g.Revisions, g.Set.Name, key) {
		if leader == g.Leader && g.lacksLiveRead() && (started || !restart.ForgivesStart(g.Set, g.Set, leader)) {
			return false, lws.NeedLivePods // which the next decision would ask for
		}
		return false, lws.NeedRevision
	}
	made := revision.MadeUnder(g.Set, g.Revisions, key)
	return restart.Recreates(made) && (started || !restart.ForgivesStart(g.Set, made, leader)), ""
}

// note writes the decision onto the leader.
func (g *input) note(leader *corev1.Pod, decision *restart.Decision, failure *restart.Failure) action.Annotate {
	tell := action.Telling{Failures: []action.Failure{{Code: failure.Code, ExitCode: failure.ExitCode}}}
	if leader.DeletionTimestamp != nil { // no deletion of ours follows
		tell.Done = g.recreated(leader, decision)
	}
	return action.Annotate{
		Object:      identity.RefOf(identity.KindPod, leader),
		Annotations: map[string]string{restart.AnnotationKey: decision.Annotation()},
		Because:     lws.Because(lws.CodeRestart, failureText(g.Name(), failure)),
		Tell:        tell,
	}
}

func (g *input) decide(leader *corev1.Pod, failure *restart.Failure) *restart.Decision {
	decision := restart.Decide(g.Set, g.Index, leader, failure, g.Now)
	if g.KeepsLogs {
		decision.AwaitLogs()
	}
	return decision
}

func failureText(group string, failure *restart.Failure) string {
	return fmt.Sprintf("group %s failed: %s", group, restart.Text(failure.PodFailure))
}
