package lws

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
)

// failureInStart is how the group failed before all of its pods ran, or nil.
func (d *groupDecision) failureInStart() *Failure {
	if f := d.mishapInStart(); f != nil && !d.forgiven(d.Leader) {
		return f
	}
	return nil
}

// mishapInStart is what would be such a failure if it is not forgiven, or nil.
func (d *groupDecision) mishapInStart() *Failure {
	if f := d.failureOf(d.Leader, 0); f != nil {
		return f
	}
	for _, pod := range d.Pods.Members {
		if f := d.failureOf(pod, 0); f != nil && d.counts(pod) {
			return f
		}
	}
	for _, pod := range d.Pods.Ghosts {
		if pod.DeletionTimestamp != nil && d.chained(pod) && d.counts(pod) {
			return d.failureOfLeaving(pod, 0)
		}
	}
	return nil
}

// chained tells whether a worker's chain of controllers ends in the leader.
func (d *groupDecision) chained(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	sts := d.Workers.Member()
	return owner != nil && (owner.UID == d.Leader.UID || sts != nil && owner.UID == sts.UID)
}

// counts tells whether a worker is one of those that the group is to have: of its
// leader's revision, and none of those that somebody scaled its StatefulSet to, which go
// when it is scaled back.
func (d *groupDecision) counts(worker *corev1.Pod) bool {
	_, index := identity.ParentAndOrdinal(worker.Name)
	return worker.Labels[lwsv1.RevisionKey] == d.Leader.Labels[lwsv1.RevisionKey] && int32(index) < SizeOf(d.Leader, d.Set)
}
