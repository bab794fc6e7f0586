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

// deleteGroup deletes all pods of a group at once, so that there is one grace period.
//
// The worker StatefulSet goes before its pods: its controller then makes none of them
// anew. It does not make the leader, which goes beside it. Workers without a StatefulSet
// go before the leader: if the process ends in between, the next one still finds them.
//
// A leader that is terminating stays as it is; restart may then be nil.
func (d *groupDecision) deleteGroup(leader *corev1.Pod, restart *Restart, isNew bool) {
	ends, unowned := leader.DeletionTimestamp == nil, d.unowned(leader)
	if ends && len(unowned) == 0 {
		d.plan.do(d.deletionOfLeader(leader, restart, isNew))
	}
	owners := []string{string(leader.UID)}
	for _, sts := range slices.Concat(d.Workers.Members, d.Workers.Ghosts) {
		if !metav1.IsControlledBy(sts, leader) {
			continue
		}
		owners = append(owners, string(sts.UID))
		if sts.DeletionTimestamp == nil {
			deletion := d.deletionOf(identity.RefOf(identity.KindStatefulSet, sts))
			deletion.Beside = ends && len(unowned) == 0
			d.plan.do(deletion)
		}
	}
	for _, pod := range byOrdinal(slices.Concat(d.Pods.Members, d.Pods.Ghosts)) {
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner != nil && slices.Contains(owners, string(owner.UID)) && pod.DeletionTimestamp == nil {
			d.plan.do(d.deletionOf(identity.RefOf(identity.KindPod, pod)))
		}
	}
	for _, pod := range unowned {
		d.plan.do(d.deletionOf(identity.RefOf(identity.KindPod, pod)))
	}
	if ends && len(unowned) > 0 {
		deletion := d.deletionOfLeader(leader, restart, isNew)
		deletion.After = true
		d.plan.do(deletion)
	}
}

// unowned returns the workers that the group started with and that lost their StatefulSet
// and their owner: the next StatefulSet would adopt them.
func (d *groupDecision) unowned(leader *corev1.Pod) []*corev1.Pod {
	recorded := recordOfLeader(d.Set, d.Index, leader.UID)
	var free []*corev1.Pod
	for _, pod := range byOrdinal(d.Pods.Orphans) {
		_, index := identity.ParentAndOrdinal(pod.Name)
		if index >= 1 && index < len(recorded) && recorded[index].uid == recordOf(pod).uid {
			free = append(free, pod)
		}
	}
	return free
}

// deletionOf deletes a part of the group at any version: the group failed whatever became
// of the part since.
func (d *groupDecision) deletionOf(part identity.Ref) action.Delete {
	return action.Delete{
		Object: part, AnyVersion: true,
		Because: because(CodeRestart, fmt.Sprintf("group %d is recreated and all of its pods end together", d.Index)),
	}
}

// deletionOfLeader deletes the leader at the version that was read. A decision that this
// plan writes changes that version: the UID alone is the precondition then.
func (d *groupDecision) deletionOfLeader(leader *corev1.Pod, restart *Restart, isNew bool) action.Delete {
	ref := identity.RefOf(identity.KindPod, leader)
	return action.Delete{
		Object: ref, AnyVersion: isNew,
		Because: because(CodeRestart, fmt.Sprintf("group %d is recreated: %s", d.Index, explained(restart.Failure))),
		Tell: action.Telling{Done: []action.Event{{
			Reason: "RecreateGroup", Action: "Delete", Related: &ref,
			Note: fmt.Sprintf("Worker pod %s failed, deleted leader pod %s to recreate group %d", restart.Failure.Pod, leader.Name, d.Index),
		}}},
	}
}

// endsAtOnce reports whether workers end together with their terminating leader: it is
// neither scaled away nor rolled, and its dependents are not orphaned.
func (d *groupDecision) endsAtOnce() bool {
	if d.Leaving == nil || d.LeaderSet == nil || slices.Contains(d.Leaving.Finalizers, metav1.FinalizerOrphanDependents) {
		return false // the next leader adopts the workers
	}
	scaledAway := int32(d.Index) >= workload.PodsOf(d.LeaderSet)
	rolled := int32(d.Index) >= livePartition(d.LeaderSet) && d.Leaving.Labels[lwsv1.RevisionKey] != leadersKey(d.LeaderSet)
	return !scaledAway && !rolled
}
