package lws

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// parallel ends the workers of a terminating leader where podTerminationPolicy is Parallel.
// Otherwise the garbage collector deletes them once the leader is gone: it costs no writes.
func (d *groupDecision) parallel() {
	if leader := cmp.Or(d.Leaving, d.Former); d.endsInParallel(leader) {
		d.deleteGroup(leader, nil, false, because(CodeParallel, fmt.Sprintf(
			"leader %s is being deleted, and podTerminationPolicy Parallel ends its group at once", leader.Name)))
	}
}

// endsInParallel reports whether the policy ends the workers of a terminating leader now. The spec decides while the
// leader's set exists, and what is written on the group once it is gone. Workers that are orphaned stay.
func (d *groupDecision) endsInParallel(leader *corev1.Pod) bool {
	if leader == nil || slices.Contains(leader.Finalizers, metav1.FinalizerOrphanDependents) {
		return false
	}
	if d.Deployment != nil && leader == d.Leaving {
		return workload.EndsInParallel(d.Set)
	}
	if owner := cmp.Or(d.LeaderSet, d.FormerOwner); owner != nil && metav1.IsControlledBy(leader, owner) &&
		d.Set != nil && metav1.IsControlledBy(owner, d.Set) {
		return workload.EndsInParallel(d.Set)
	}
	for _, sts := range WorkersOf(&d.Group, leader) {
		if workload.WrittenParallel(sts, leader) {
			return true
		}
	}
	return false
}

// writtenPolicy writes the policy onto the worker StatefulSet when the set's changed. It returns
// true: the rules after it do not depend on it.
func (d *groupDecision) writtenPolicy() bool {
	sts := d.Workers.Own()
	if d.Leader == nil || sts == nil || workload.WrittenParallel(sts, d.Leader) == workload.EndsInParallel(d.Set) {
		return true
	}
	d.plan.do(action.Annotate{
		Object:      identity.RefOf(identity.KindStatefulSet, sts),
		Annotations: map[string]string{lwsv1.PodTerminationPolicyAnnotationKey: workload.WrittenPolicy(d.Set, d.Leader)},
		Because: because(CodeChanged, fmt.Sprintf("statefulset %s keeps podTerminationPolicy %s for the time after its set",
			sts.Name, cmp.Or(d.Set.Spec.PodTerminationPolicy, lwsv1.DefaultPodTermination))),
	})
	return true
}
