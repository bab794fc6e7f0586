package lws

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// displaced tells whether the leaders of a StatefulSet are placed otherwise than
// the set says. To the StatefulSet controller that is a new template like any
// other, and it must be given like one: with nothing replaced yet.
func (d *setDecision) displaced(sts *appsv1.StatefulSet) bool {
	return slices.ContainsFunc(workload.Placements, func(placement string) bool { return d.misplaced(sts, d.Set, placement) })
}

// misplaced is the same of one annotation. Where the template was found, another
// version may have said it otherwise: what counts is whether it was written for what
// the set says now, and that is copied to the metadata with each write.
func (d *setDecision) misplaced(sts *appsv1.StatefulSet, set *lwsv1.LeaderWorkerSet, placement string) bool {
	if sts.Spec.Template.Annotations[placement] == workload.LeadersPlacement(set, placement) {
		return false
	}
	return !d.foundTemplate(sts) || sts.Annotations[placement] != set.Annotations[placement]
}

// unschedulable tells that there is no place for a leader that needs one for
// itself, once the scheduler has said so. Its own words are not repeated: they
// count nodes, and change with every one.
func unschedulable(leader *corev1.Pod, topology string) *action.Event {
	if !workload.Unschedulable(leader) {
		return nil
	}
	return &action.Event{
		Warning: true, Reason: CodeLeaderUnschedulable, Action: "Wait",
		Related: &identity.Ref{Kind: identity.KindPod, Namespace: leader.Namespace, Name: leader.Name, UID: leader.UID},
		Note: fmt.Sprintf("no node can take leader %s: it needs one with label %s, with a value that no other group has; the pod's events say what nodes lack",
			leader.Name, topology),
	}
}
