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
	"lockstep.dev/lockstep/internal/lws/workload"
)

// refuseMistaken stops at a leader with the annotation of a worker: an API server
// without start ordinals would otherwise create groups of groups for ever.
func refuseMistaken(g *input) (p lws.Plan, next bool) {
	if _, mistaken := g.Leader.Annotations[lwsv1.LeaderPodNameAnnotationKey]; !mistaken {
		return p, true
	}
	note := fmt.Sprintf(
		"leader pod %s/%s contains mistake annotation '%s': requires Kubernetes ≥v1.27 or v1.26 with StatefulSetStartOrdinal feature",
		g.Leader.Namespace, g.Leader.Name, lwsv1.LeaderPodNameAnnotationKey)
	p.Wait(lws.Wait{Reason: lws.Because(lws.CodeMistakenAnnotation, note), Tell: lws.Warning("FailedCreate", "Create", note, new(identity.RefOf(identity.KindPod, g.Leader)))})
	return p, false
}

// tellReadiness tells the Deployment controller whether a group with a key is ready: a condition of the leader says
// whether its workers are. A leader that is created for a group of one has no such gate. The write comes first: what
// the API server refuses is tried again and again.
func tellReadiness(g *input, plan lws.Plan) lws.Plan {
	if g.Leader == nil || !g.HasKey || workload.SizeOf(g.Leader, g.Set) < 2 || plan.Needs != "" || deletes(&plan, g.Leader) {
		return plan
	}
	want := corev1.PodCondition{
		Type: lwsv1.GroupReadyCondition, Status: corev1.ConditionFalse, Reason: lwsv1.WorkersNotReadyReason, LastTransitionTime: metav1.NewTime(g.Now),
	}
	if sts := g.Workers.Own(); sts != nil && lws.WorkersReady(sts) {
		want.Status, want.Reason = corev1.ConditionTrue, lwsv1.WorkersReadyReason
	}
	if lws.GroupReadyOf(g.Leader) == want.Status {
		return plan
	}
	plan.Actions = slices.Insert(plan.Actions, 0, action.Action(action.SetCondition{
		Pod: identity.RefOf(identity.KindPod, g.Leader), Condition: want,
		Because: lws.Because(lws.CodeGroupReady, fmt.Sprintf("the workers of group %s are ready: %s", g.Name(), want.Status)),
	}))
	return plan
}

// deletes reports whether the plan deletes a pod.
func deletes(p *lws.Plan, pod *corev1.Pod) bool {
	return slices.ContainsFunc(p.Actions, func(a action.Action) bool {
		deletion, is := a.(action.Delete)
		return is && deletion.Object.UID == pod.UID
	})
}

// awaitRoom creates nothing for a group with a key before the set has room for its leader.
func awaitRoom(g *input) (p lws.Plan, next bool) {
	if !g.HasKey || !workload.IsGated(g.Leader) {
		return p, true
	}
	p.Wait(lws.Wait{Reason: lws.Because(lws.CodeDeferred, fmt.Sprintf("group %s starts once its set has room for it", g.Name()))})
	return p, false
}

// deleteEnded deletes a leader with a key whose containers ended: its ReplicaSet has created another one. Its group goes
// with it.
func deleteEnded(g *input) (p lws.Plan, next bool) {
	if !g.HasKey || g.Leader == nil || !workload.HasEnded(g.Leader) {
		return p, true
	}
	p.Do(deletionOf(identity.RefOf(identity.KindPod, g.Leader), g.recreation()))
	return p, false
}

// ungate lets a leader be scheduled once no pod of a previous incarnation has a name of its group, also above its size.
func ungate(g *input) (p lws.Plan, next bool) {
	if g.HasKey || !workload.IsGated(g.Leader) { // the set lifts the gate of a leader with a key
		return p, true
	}
	if left := lws.ObjectsOf(identity.KindPod, g.Pods.Previous); len(left) > 0 {
		p.Wait(lws.GoneWait(g.Set, fmt.Sprintf("leader %s is scheduled once these are gone: ", g.Leader.Name), left, time.Time{}))
		return p, false
	}
	p.Do(action.Ungate{
		Pod:     identity.RefOf(identity.KindPod, g.Leader),
		Gate:    lwsv1.GroupReplacementGate,
		Because: lws.Because(lws.CodePreviousGone, fmt.Sprintf("leader %s has the gate %s, and no pod of the group before it is left", g.Leader.Name, lwsv1.GroupReplacementGate)),
	})
	return p, true // no event need follow: a scheduler may wait for the PodGroup of the leader
}
