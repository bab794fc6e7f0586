package lws

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// readiness tells the Deployment controller whether a group with a key is ready: a condition of the leader says
// whether its workers are. A leader that is created for a group of one has no such gate. The write comes first: what
// the API server refuses is tried again and again.
func (d *groupDecision) readiness() {
	if d.Leader == nil || !d.HasKey || workload.SizeOf(d.Leader, d.Set) < 2 || d.plan.Needs != "" || d.plan.deletes(d.Leader) {
		return
	}
	want := corev1.PodCondition{
		Type: lwsv1.GroupReadyCondition, Status: corev1.ConditionFalse, Reason: lwsv1.WorkersNotReadyReason, LastTransitionTime: metav1.NewTime(d.Now),
	}
	if sts := d.Workers.Own(); sts != nil && WorkersReady(sts) {
		want.Status, want.Reason = corev1.ConditionTrue, lwsv1.WorkersReadyReason
	}
	if GroupReadyOf(d.Leader) == want.Status {
		return
	}
	d.plan.Actions = slices.Insert(d.plan.Actions, 0, action.Action(action.SetCondition{
		Pod: identity.RefOf(identity.KindPod, d.Leader), Condition: want,
		Because: because(CodeGroupReady, fmt.Sprintf("the workers of group %s are ready: %s", d.name(), want.Status)),
	}))
}

// deletes reports whether the plan deletes a pod.
func (p *Plan) deletes(pod *corev1.Pod) bool {
	return slices.ContainsFunc(p.Actions, func(a action.Action) bool {
		deletion, is := a.(action.Delete)
		return is && deletion.Object.UID == pod.UID
	})
}

// GroupReadyOf is the condition of a leader about its workers, or empty.
func GroupReadyOf(leader *corev1.Pod) corev1.ConditionStatus {
	return statusOf(leader, lwsv1.GroupReadyCondition)
}

// StartsWorkers reports whether a leader is ready as far as startupPolicy LeaderReady goes. One with a key is Ready
// only when its workers are: its containers count.
func StartsWorkers(leader *corev1.Pod) bool {
	if !workload.IsHashLeader(leader) {
		return PodReady(leader)
	}
	return leader.Status.Phase == corev1.PodRunning &&
		(PodReady(leader) || statusOf(leader, corev1.ContainersReady) == corev1.ConditionTrue)
}

func statusOf(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return ""
	}
	return pod.Status.Conditions[i].Status
}

// admitted creates nothing for a group with a key before the set has room for its leader.
func (d *groupDecision) admitted() bool {
	if !d.HasKey || !workload.IsGated(d.Leader) {
		return true
	}
	d.plan.wait(Wait{Reason: because(CodeDeferred, fmt.Sprintf("group %s starts once its set has room for it", d.name()))})
	return false
}

// ended deletes a leader with a key whose containers ended: its ReplicaSet has created another one. Its group goes
// with it.
func (d *groupDecision) ended() bool {
	if !d.HasKey || d.Leader == nil || !workload.HasEnded(d.Leader) {
		return true
	}
	d.plan.do(deletionOf(identity.RefOf(identity.KindPod, d.Leader), d.recreation()))
	return false
}
