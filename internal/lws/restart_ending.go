package lws

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// restart ends a group that failed, all of its pods at a time: there is one grace
// period, and not the workers' after the leader's. It tells whether the group goes
// on.
//
// The set has written the failure down. Whoever reads that, now or after a crash,
// deletes that very leader and nobody else. What has to be done before is a rule
// before this one, which may hold it back.
func (d *groupDecision) restart() bool {
	switch {
	case !Recreates(d.Set):
		return true
	case d.Leader == nil:
		if d.endsAtOnce() {
			d.end(d.Leaving)
		}
		return true
	}
	failed := Failed(d.Set, d.Index, d.Leader.UID)
	if failed == nil {
		return true
	}
	if d.Now.Before(failed.DueAt.Time) {
		d.plan.wait(Wait{Reason: because(CodeBackoff, backoffTold(failed)), Until: failed.DueAt.Time})
		return false
	}
	d.end(d.Leader)
	return false
}

// end deletes all that there is of a group under one leader. The worker
// StatefulSet goes before its pods, so that its controller makes none of them anew,
// and beside the leader, whom that controller does not make: he goes without waiting
// for it. He waits for those that nothing else would end, so that none is lost sight
// of when the process ends in between.
func (d *groupDecision) end(leader *corev1.Pod) {
	ends, unowned := leader.DeletionTimestamp == nil, d.unowned(leader)
	if ends && len(unowned) == 0 {
		d.plan.do(d.endingLeader(leader))
	}
	owners := []string{string(leader.UID)}
	for _, sts := range slices.Concat(d.Workers.Members, d.Workers.Ghosts) {
		if !metav1.IsControlledBy(sts, leader) {
			continue
		}
		owners = append(owners, string(sts.UID))
		if sts.DeletionTimestamp == nil {
			ending := d.ending(identity.RefOf(identity.KindStatefulSet, sts))
			ending.Beside = ends && len(unowned) == 0
			d.plan.do(ending)
		}
	}
	for _, pod := range byOrdinal(slices.Concat(d.Pods.Members, d.Pods.Ghosts)) {
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner != nil && slices.Contains(owners, string(owner.UID)) && pod.DeletionTimestamp == nil {
			d.plan.do(d.ending(identity.RefOf(identity.KindPod, pod)))
		}
	}
	for _, pod := range unowned {
		d.plan.do(d.ending(identity.RefOf(identity.KindPod, pod)))
	}
	if ends && len(unowned) > 0 {
		ending := d.endingLeader(leader)
		ending.After = true
		d.plan.do(ending)
	}
}

// unowned are the workers that the group started with and that were set free with
// their StatefulSet: the next one would adopt them.
func (d *groupDecision) unowned(leader *corev1.Pod) []*corev1.Pod {
	var free []*corev1.Pod
	for _, pod := range byOrdinal(d.Pods.Orphans) {
		if d.startedWith(leader, pod) {
			free = append(free, pod)
		}
	}
	return free
}

// startedWith tells whether a worker is one that the group under a leader started
// with.
func (d *groupDecision) startedWith(leader, pod *corev1.Pod) bool {
	r := recordOfLeader(d.Set, d.Index, leader.UID)
	_, index := identity.ParentAndOrdinal(pod.Name)
	return index >= 1 && index < len(r) && r[index].uid == recordOf(pod).uid
}

// ending deletes a part of a group whatever its version: that its leader failed
// does not depend on it.
func (d *groupDecision) ending(part identity.Ref) action.Delete {
	return action.Delete{
		Object: part, AnyVersion: true,
		Because: because(CodeRestart, fmt.Sprintf("group %d is recreated and all of it ends together", d.Index)),
	}
}

func (d *groupDecision) endingLeader(leader *corev1.Pod) action.Delete {
	ref := identity.RefOf(identity.KindPod, leader)
	pod, why := leader.Name, "it failed"
	if r := RestartsOf(d.Set, d.Index); r != nil && len(r.Failures) > 0 {
		last := r.Failures[len(r.Failures)-1]
		pod, why = last.Pod, explained(last)
	}
	return action.Delete{
		Object:  ref,
		Because: because(CodeRestart, fmt.Sprintf("group %d is recreated: %s", d.Index, why)),
		Tell: action.Telling{Done: []action.Event{{
			Reason: "RecreateGroup", Action: "Delete", Related: &ref,
			Note: fmt.Sprintf("Worker pod %s failed, deleted leader pod %s to recreate group %d", pod, leader.Name, d.Index),
		}}},
	}
}

// endsAtOnce tells whether workers whose leader is on its way out go with it at
// once. Leaders that are scaled away or rolled are left to the garbage collector:
// it costs no writes.
func (d *groupDecision) endsAtOnce() bool {
	if d.Leaving == nil || d.LeaderSet == nil || slices.Contains(d.Leaving.Finalizers, metav1.FinalizerOrphanDependents) {
		return false // whoever orphans the workers wants them to stay: the next leader adopts them
	}
	scaledAway := int32(d.Index) >= PodsOf(d.LeaderSet)
	rolled := int32(d.Index) >= livePartition(d.LeaderSet) && d.Leaving.Labels[lwsv1.RevisionKey] != leadersKey(d.LeaderSet)
	return !scaledAway && !rolled
}
