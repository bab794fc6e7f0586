package group

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
)

// exhaust marks a leader whose group failed once too often, and ends the group. The leader goes
// first: whatever ends in between, the mark says what is left to do.
func exhaust(g *input, failure *restart.Failure) (p lws.Plan) {
	decision, why := g.decide(g.Leader, failure), failureText(g.Name(), failure)
	p.Do(action.SetFinalizers{
		Object:     identity.RefOf(identity.KindPod, g.Leader),
		Finalizers: append(slices.Clone(g.Leader.Finalizers), lwsv1.GroupRestartBudgetFinalizer),
		Annotations: map[string]string{
			restart.AnnotationKey:                          decision.Annotation(),
			lwsv1.GroupRestartBudgetExhaustedAnnotationKey: "true",
			lwsv1.RecoverAnnotationKey:                     "", // one from before does not recover the group
		},
		Because: lws.Because(lws.CodeBudgetExceeded, why+", and maxGroupRestarts allows no more"),
		Tell:    action.Telling{Failures: []action.Failure{{Code: failure.Code, ExitCode: failure.ExitCode}}},
	})
	p.Add(stop(g, true))
	return p
}

// stop ends a group whose leader is marked, and its pods stay without their containers. The garbage
// collector deletes the workers with their leader.
func stop(g *input, isNew bool) (p lws.Plan) {
	p = mark(g, g.Leader)
	ref := identity.RefOf(identity.KindPod, g.Leader)
	p.Do(action.Delete{
		Object: ref, AnyVersion: isNew, Foreground: true, Because: g.stopping(),
		Tell: action.Telling{Done: []action.Event{{
			Warning: true, Reason: lws.CodeBudgetExceeded, Action: "Delete", Related: &ref,
			Note: fmt.Sprintf("Restart budget exhausted; terminated group %s and stopped automatic recovery", g.Name()),
		}}},
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

// keepEvidence keeps a group that was stopped until a cause to let it go, and then lets it go.
func keepEvidence(g *input) (p lws.Plan, next bool) {
	leader := cmp.Or(g.Leaving, g.Former)
	if lws.IsExhausted(g.Leader) {
		return p, true // it is marked, and not deleted yet
	}
	if !lws.IsExhausted(leader) {
		p.Add(lws.Release(g.Kept, g.LeaderName, "its leader is gone"))
		return p, len(p.Actions) == 0
	}
	entry := restart.Entry(g.Set, g.Index)
	switch why := g.endOfRetention(leader); {
	case why == "":
		p.Add(endStopped(g, leader))
		p.Await(g.Now.Add(lws.ConflictLook), lws.CodeBudgetExceeded, lws.ExhaustedText(leader))
	case restart.IsRecovered(leader) && entry != nil && entry.Recreations != nil:
		p.Await(g.Now.Add(lws.ConflictLook), lws.CodeBudgetExceeded, fmt.Sprintf("group %s is recreated once its count is cleared", g.Name()))
	default:
		p.Add(endInParallel(g))
		p.Add(lws.Release(g.Kept, g.LeaderName, why, g.reliedSpec()...))
	}
	return p, false
}

// reliedSpec is the spec of the leader StatefulSet or Deployment as it was judged: the cache of a process that
// started just now may show an earlier one.
func (g *input) reliedSpec() []action.Standing {
	switch {
	case g.LeaderSet != nil:
		return []action.Standing{lws.Specified(identity.KindStatefulSet, g.LeaderSet)}
	case g.Deployment != nil:
		return []action.Standing{lws.Specified(identity.KindDeployment, g.Deployment)}
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
	case g.scaledAway():
		return "it was scaled away"
	case g.rolled(leader):
		return "the rollout replaces it"
	case restart.IsRecovered(leader):
		return "it is recovered"
	}
	return ""
}
