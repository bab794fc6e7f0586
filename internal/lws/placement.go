package lws

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// placements are the annotations that say where groups go. They stand in the
// template of leaders and are no part of a revision: the API has it so.
var placements = []string{lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey}

// displaced tells whether the leaders of a StatefulSet are placed otherwise than
// the set says. To the StatefulSet controller that is a new template like any
// other, and it must be given like one: with nothing replaced yet.
func (d *setDecision) displaced(sts *appsv1.StatefulSet) bool {
	return slices.ContainsFunc(placements, func(placement string) bool { return d.misplaced(sts, d.Set, placement) })
}

// misplaced is the same of one annotation. Where the template was found, another
// version may have said it otherwise: what counts is whether it was written for what
// the set says now, and that is copied to the metadata with each write.
func (d *setDecision) misplaced(sts *appsv1.StatefulSet, set *lwsv1.LeaderWorkerSet, placement string) bool {
	if sts.Spec.Template.Annotations[placement] == leadersPlacement(set, placement) {
		return false
	}
	return !d.foundTemplate(sts) || sts.Annotations[placement] != set.Annotations[placement]
}

// leadersPlacement is what the leaders' template is to say of a placement: what the set
// says, or else what its user wrote into that template, where it is part of the revision.
func leadersPlacement(set *lwsv1.LeaderWorkerSet, placement string) string {
	return cmp.Or(templateAnnotations(set, set)[placement], writtenForLeaders(set).Annotations[placement])
}

// leftBehind tells whether a leader was made from another template than its
// StatefulSet has now, by what the StatefulSet controller says of both. Before that one
// has seen the present template, what tells is where the leader was sent.
func leftBehind(sts *appsv1.StatefulSet, leader *corev1.Pod) bool {
	if sts == nil || leader.Labels[appsv1.ControllerRevisionHashLabelKey] == "" || sts.Status.ObservedGeneration == 0 {
		return false
	}
	if observed(sts) {
		return leader.Labels[appsv1.ControllerRevisionHashLabelKey] != sts.Status.UpdateRevision
	}
	return slices.ContainsFunc(placements, func(placement string) bool {
		return leader.Annotations[placement] != sts.Spec.Template.Annotations[placement]
	})
}

// Topology is the node label that a leader was placed by, or empty.
func Topology(leader *corev1.Pod) string {
	return leader.Annotations[lwsv1.ExclusiveKeyAnnotationKey]
}

// shared is what workers share with their leader of a placement, or empty: what the leader
// was placed by, whatever the set says meanwhile, which is for leaders to come. This one may
// stand where no such label is. What somebody wrote into the leaders' template instead of
// the set places leaders alone: the API has it so, and their workers run elsewhere.
func shared(set, restored *lwsv1.LeaderWorkerSet, leader *corev1.Pod, placement string) string {
	placed := leader.Annotations[placement]
	if placed == writtenForLeaders(restored).Annotations[placement] && placed != set.Annotations[placement] {
		return ""
	}
	return placed
}

// unschedulable tells that there is no place for a leader that needs one for
// itself, once the scheduler has said so. Its own words are not repeated: they
// count nodes, and change with every one.
func unschedulable(leader *corev1.Pod, topology string) *action.Event {
	if !Unschedulable(leader) {
		return nil
	}
	return &action.Event{
		Warning: true, Reason: CodeLeaderUnschedulable, Action: "Wait",
		Related: &identity.Ref{Kind: identity.KindPod, Namespace: leader.Namespace, Name: leader.Name, UID: leader.UID},
		Note: fmt.Sprintf("no node can take leader %s: it needs one with label %s, with a value that no other group has; the pod's events say what nodes lack",
			leader.Name, topology),
	}
}

// Unschedulable tells whether the scheduler found no place for a pod.
func Unschedulable(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}
