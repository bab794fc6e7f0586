package group

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// endInParallel ends the workers of a terminating leader where podTerminationPolicy is Parallel.
// Otherwise the garbage collector deletes them once the leader is gone: it costs no writes.
func endInParallel(g *input) (p lws.Plan) {
	if leader := cmp.Or(g.Leaving, g.Former); g.endsInParallel(leader) {
		p = deleteGroup(g, leader, nil, lws.Plan{}, lws.Because(lws.CodeParallel, fmt.Sprintf(
			"leader %s is being deleted, and podTerminationPolicy Parallel ends its group at once", leader.Name)))
	}
	return p
}

// endsInParallel reports whether the policy ends the workers of a terminating leader now. The spec decides while the
// leader's set exists, and what is written on the group once it is gone. Workers that are orphaned stay.
func (g *input) endsInParallel(leader *corev1.Pod) bool {
	if leader == nil || slices.Contains(leader.Finalizers, metav1.FinalizerOrphanDependents) {
		return false
	}
	if g.Deployment != nil && leader == g.Leaving {
		return workload.EndsInParallel(g.Set)
	}
	if owner := cmp.Or(g.LeaderSet, g.FormerOwner); owner != nil && metav1.IsControlledBy(leader, owner) &&
		g.Set != nil && metav1.IsControlledBy(owner, g.Set) {
		return workload.EndsInParallel(g.Set)
	}
	return slices.ContainsFunc(lws.WorkersOf(&g.Group, leader), func(sts *appsv1.StatefulSet) bool { return workload.WrittenParallel(sts, leader) })
}

// writePolicy writes the policy onto the worker StatefulSet when the set's changed.
func writePolicy(g *input) (p lws.Plan, next bool) {
	sts := g.Workers.Own()
	if g.Leader == nil || sts == nil || workload.WrittenParallel(sts, g.Leader) == workload.EndsInParallel(g.Set) {
		return p, true
	}
	p.Do(action.Annotate{
		Object:      identity.RefOf(identity.KindStatefulSet, sts),
		Annotations: map[string]string{lwsv1.PodTerminationPolicyAnnotationKey: workload.WrittenPolicy(g.Set, g.Leader)},
		Because: lws.Because(lws.CodeChanged, fmt.Sprintf("statefulset %s keeps podTerminationPolicy %s for the time after its set",
			sts.Name, cmp.Or(g.Set.Spec.PodTerminationPolicy, lwsv1.DefaultPodTermination))),
	})
	return p, true
}

// retainPVCs keeps the leader while its group's StatefulSet would delete the workers' PVCs
// with it. The set's own reconcile turns that StatefulSet to Retain.
func retainPVCs(g *input) (p lws.Plan, next bool) {
	workers := g.Workers.Own()
	if workers == nil || len(workers.Spec.VolumeClaimTemplates) == 0 ||
		!volumes.AreDeletedBy(workers) && !volumes.AreOwnedBy(slices.Concat(g.Volumes.Owned, g.Volumes.Orphans), workers.UID) {
		return p, true
	}
	p.Await(g.Now.Add(lws.RetainAgain), lws.CodeTie,
		fmt.Sprintf("statefulset %s would delete the PVCs of group %s: it is turned to Retain first", workers.Name, g.Name()))
	return p, false
}

// deleteGroup deletes all pods of a group at once, so that there is one grace period. note writes the decision onto the
// leader, and has no action where it is written already.
//
// Workers without a StatefulSet are deleted before the leader: if the process ends in between, the next one still finds
// them. The StatefulSet is deleted before its pods: its controller then creates none of them again.
//
// A leader that is terminating stays as it is; decision may then be nil.
func deleteGroup(g *input, leader *corev1.Pod, decision *restart.Decision, note lws.Plan, reason action.Reason) (p lws.Plan) {
	p.Do(note.Actions...)
	var owners []types.UID
	for _, sts := range lws.WorkersOf(&g.Group, leader) {
		if owners = append(owners, sts.UID); sts.DeletionTimestamp == nil {
			p.Do(deletionOf(identity.RefOf(identity.KindStatefulSet, sts), reason))
		}
	}
	unowned := lws.Sorted(lws.ObjectsOf(identity.KindPod, g.unowned(leader)))
	for _, pod := range unowned {
		p.Do(deletionOf(pod.Ref, reason))
	}
	if leader.DeletionTimestamp == nil {
		p.Do(action.Delete{ // a decision that this plan writes changes the version that was read
			Object: identity.RefOf(identity.KindPod, leader), AnyVersion: len(note.Actions) > 0, After: len(unowned) > 0,
			Because: lws.Because(lws.CodeRestart, fmt.Sprintf("group %s is recreated: %s", g.Name(), decision.Text())),
			Tell:    action.Telling{Done: g.recreated(leader, decision)},
		})
	}
	for _, pod := range lws.Sorted(lws.ObjectsOf(identity.KindPod, slices.Concat(g.Pods.Owned, g.Pods.Previous))) {
		owner := metav1.GetControllerOfNoCopy(pod.Object)
		if owner != nil && slices.Contains(owners, owner.UID) && pod.Object.GetDeletionTimestamp() == nil {
			p.Do(deletionOf(pod.Ref, reason))
		}
	}
	return p
}

// unowned returns the workers that the group started with and that lost their StatefulSet: the
// next StatefulSet would adopt them.
func (g *input) unowned(leader *corev1.Pod) []*corev1.Pod {
	if g.Set == nil || g.Set.DeletionTimestamp != nil { // no StatefulSet follows
		return nil
	}
	return slices.DeleteFunc(slices.Clone(g.Pods.Orphans), g.pods(leader).IsUnrecorded)
}

// recreated tells that a group is recreated, and why.
func (g *input) recreated(leader *corev1.Pod, decision *restart.Decision) []action.Event {
	ref := identity.RefOf(identity.KindPod, leader)
	return []action.Event{*lws.Warning("RecreateGroup", "Delete", decision.Note(leader, g.Name()), &ref)}
}
