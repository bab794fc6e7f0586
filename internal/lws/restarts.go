package lws

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// restart recreates a group that failed: it writes the decision onto the leader, then
// deletes the whole group. It reports whether the rules after it go on.
//
// A crash between the two writes loses nothing: the next reconcile finds the annotation. Where the set
// has maxGroupRestarts, the status counts the restart in between.
func (d *groupDecision) restart() bool {
	switch {
	case d.Leader == nil:
		d.leaving()
		return d.plan.Needs == ""
	case IsExhausted(d.Leader):
		d.stop(false)
		return false
	case !restart.Recreates(d.Set):
		return true
	}
	decision := restart.Of(d.Set, d.Leader)
	isNew := decision == nil
	if isNew {
		failure := d.pods(d.Leader).Failure(d.Now)
		if failure == nil || !d.answered(d.Leader) {
			return d.plan.Needs == ""
		}
		if !d.Live {
			d.plan.Needs = NeedLivePods
			return false
		}
		if restart.Exhausts(d.Set, d.Index, d.Leader, failure) {
			d.exhaust(failure)
			return false
		}
		decision = d.decideRestart(d.Leader, failure)
	}
	if until := decision.Due(d.Set); d.Now.Before(until.Time) {
		d.plan.await(until.Time, CodeBackoff, decision.BackoffText(d.Set, d.Index))
		return false
	}
	if !restart.IsCounted(d.Set, d.Index, decision) {
		d.plan.await(time.Time{}, CodeRestart, fmt.Sprintf("group %s is recreated once the status counts it for maxGroupRestarts", d.name()))
		return false
	}
	d.deleteGroup(d.Leader, decision, isNew, d.recreation())
	return false
}

// leaving ends the workers of a leader that failed and is terminating, and keeps the evidence on
// it. Leaders that are scaled away or rolled end as podTerminationPolicy says.
func (d *groupDecision) leaving() {
	if !d.endsAtOnce() {
		d.parallel()
		return
	}
	if restart.Of(d.Set, d.Leaving) == nil && d.answered(d.Leaving) {
		d.decideRestart(d.Leaving, d.pods(d.Leaving).FailureOfLeader(d.Now))
	}
	if d.plan.Needs == "" {
		d.deleteGroup(d.Leaving, nil, false, d.recreation())
	}
}

// endsAtOnce reports whether workers end together with their terminating leader because it
// failed: it is neither scaled away nor rolled, and its dependents are not orphaned.
func (d *groupDecision) endsAtOnce() bool {
	if !restart.Recreates(d.Set) || d.Leaving == nil || !d.hasOwner() || slices.Contains(d.Leaving.Finalizers, metav1.FinalizerOrphanDependents) {
		return false // the next leader adopts the workers
	}
	if d.HasKey { // its ReplicaSet may have deleted it: no field says so
		return !d.rolled(d.Leaving) && d.failed(d.Leaving)
	}
	return !d.scaledAway() && !d.rolled(d.Leaving) && !d.wasApart()
}

// failed reports whether a terminating leader failed, and was not deleted alone.
func (d *groupDecision) failed(leader *corev1.Pod) bool {
	if restart.Of(d.Set, leader) != nil {
		return true
	}
	failure := d.pods(leader).FailureOfLeader(d.Now)
	return failure != nil && (failure.Code != restart.CodePodDeleted || failure.Disrupted)
}

// hasOwner reports whether the set owns what makes the leader.
func (d *groupDecision) hasOwner() bool { return d.LeaderSet != nil || d.Deployment != nil }

// scaledAway reports whether the leader StatefulSet is to have no such group. Of groups with keys the set decides
// which of them go.
func (d *groupDecision) scaledAway() bool {
	return !d.HasKey && int32(d.Index) >= workload.PodsOf(d.LeaderSet)
}

// rolled reports whether the leader StatefulSet replaces a leader by one of its own revision.
func (d *groupDecision) rolled(leader *corev1.Pod) bool {
	if d.HasKey {
		return d.Deployment != nil && leader.Labels[lwsv1.RevisionKey] != ownerOf(nil, d.Deployment).key()
	}
	if leader.Labels[lwsv1.RevisionKey] == ownerOf(d.LeaderSet, nil).key() {
		return restart.IsReplaced(d.Set, d.Index, leader) // the template changed back meanwhile
	}
	return int32(d.Index) >= livePartition(d.LeaderSet)
}

// pods is the group of a leader as package restart reads it.
func (d *groupDecision) pods(leader *corev1.Pod) restart.Group {
	return restart.Group{Set: d.Set, Index: d.Index, Leader: leader, Workers: d.Workers, Pods: d.Pods}
}

// answered reports whether the policy of the leader's revision recreates the group now: a
// change of the policy rolls the groups and holds for each from then on, and None alone holds
// at once for all. It asks for the revision if that is not read yet.
func (d *groupDecision) answered(leader *corev1.Pod) bool {
	key, started := leader.Labels[lwsv1.RevisionKey], restart.HasStarted(d.Set, d.Index, leader)
	if !d.Sought && !revision.Knows(d.Revisions, d.Set.Name, key) {
		d.plan.Needs = NeedRevision
		if leader == d.Leader && (started || !restart.ForgivesStart(d.Set, d.Set, leader)) {
			d.plan.Needs = NeedLivePods // which the next decision would ask for
		}
		return false
	}
	made := madeUnder(d.Set, d.Revisions, key)
	return restart.Recreates(made) && (started || !restart.ForgivesStart(d.Set, made, leader))
}

// madeUnder returns a set as its groups at a revision were created. A group whose revision is lost goes by the set.
func madeUnder(set *lwsv1.LeaderWorkerSet, revisions identity.Claim[*appsv1.ControllerRevision], key string) *lwsv1.LeaderWorkerSet {
	if restored, err := revision.RestoredAt(set, revisions, key); err == nil {
		return restored
	}
	return set
}

// decideRestart plans to write the decision onto the leader.
func (d *groupDecision) decideRestart(leader *corev1.Pod, failure *restart.Failure) *restart.Decision {
	decision := d.decide(leader, failure)
	tell := action.Telling{Failures: []action.Failure{{Code: failure.Code, ExitCode: failure.ExitCode}}}
	if leader.DeletionTimestamp != nil { // no deletion of ours follows
		tell.Done = d.recreated(leader, decision)
	}
	d.plan.do(action.Annotate{
		Object:      identity.RefOf(identity.KindPod, leader),
		Annotations: map[string]string{restart.AnnotationKey: decision.Annotation()},
		Because:     because(CodeRestart, failureText(d.name(), failure)),
		Tell:        tell,
	})
	return decision
}

func (d *groupDecision) decide(leader *corev1.Pod, failure *restart.Failure) *restart.Decision {
	decision := restart.Decide(d.Set, d.Index, leader, failure, d.Now)
	if d.KeepsLogs {
		decision.AwaitLogs()
	}
	return decision
}

func failureText(group string, failure *restart.Failure) string {
	return fmt.Sprintf("group %s failed: %s", group, restart.Text(failure.PodFailure))
}

// AddLogs plans to add the ends of logs to the decision on a leader, one for each of its containers.
func AddLogs(leader *corev1.Pod, decision *restart.Decision, logs []restart.Log) (p Plan) {
	p.do(action.Annotate{
		Object:      identity.RefOf(identity.KindPod, leader),
		Annotations: map[string]string{restart.AnnotationKey: decision.WithLogs(logs).Annotation()},
		Because:     because(CodeRestart, "the logs of the containers that failed were read"),
	})
	return p
}

// deleteGroup deletes all pods of a group at once, so that there is one grace period.
//
// Workers without a StatefulSet go before the leader: if the process ends in between, the next one still finds them.
// The StatefulSet goes before its pods: its controller then creates none of them again. Where a worker is gone it is about
// to do so, and the StatefulSet goes before the decision is written: a group without it has failed as well.
//
// A leader that is terminating stays as it is; decision may then be nil.
func (d *groupDecision) deleteGroup(leader *corev1.Pod, decision *restart.Decision, isNew bool, reason action.Reason) {
	unowned, first := sorted(bearersOf(identity.KindPod, d.unowned(leader))), len(d.plan.Actions)
	if isNew && decision.Failure.Reason == restart.CodePodGone {
		first = 0
	}
	var owners []types.UID
	for _, sts := range WorkersOf(&d.Group, leader) {
		if owners = append(owners, sts.UID); sts.DeletionTimestamp == nil {
			d.plan.Actions = slices.Insert(d.plan.Actions, first, deletionOf(identity.RefOf(identity.KindStatefulSet, sts), reason))
		}
	}
	for _, pod := range unowned {
		d.plan.do(deletionOf(pod.Ref, reason))
	}
	if leader.DeletionTimestamp == nil {
		deletion := d.deletionOfLeader(leader, decision, isNew)
		deletion.After = len(unowned) > 0
		d.plan.do(deletion)
	}
	for _, pod := range sorted(bearersOf(identity.KindPod, slices.Concat(d.Pods.Owned, d.Pods.Previous))) {
		owner := metav1.GetControllerOfNoCopy(pod.object)
		if owner != nil && slices.Contains(owners, owner.UID) && pod.object.GetDeletionTimestamp() == nil {
			d.plan.do(deletionOf(pod.Ref, reason))
		}
	}
}

// unowned returns the workers that the group started with and that lost their StatefulSet: the
// next StatefulSet would adopt them.
func (d *groupDecision) unowned(leader *corev1.Pod) []*corev1.Pod {
	if d.Set == nil || d.Set.DeletionTimestamp != nil { // no StatefulSet follows
		return nil
	}
	return slices.DeleteFunc(slices.Clone(d.Pods.Orphans), func(pod *corev1.Pod) bool {
		return !restart.IsRecorded(d.Set, d.Index, leader, pod)
	})
}

// deletionOf deletes a part of the group at any version: the group ends whatever became of the part since.
func deletionOf(part identity.Ref, reason action.Reason) action.Action {
	return action.Delete{Object: part, AnyVersion: true, Because: reason}
}

func (d *groupDecision) recreation() action.Reason {
	return because(CodeRestart, fmt.Sprintf("group %s is recreated and all of its pods end together", d.name()))
}

// deletionOfLeader deletes the leader at the version that was read. A decision that this
// plan writes changes that version: the UID alone is the precondition then.
func (d *groupDecision) deletionOfLeader(leader *corev1.Pod, decision *restart.Decision, isNew bool) action.Delete {
	ref := identity.RefOf(identity.KindPod, leader)
	return action.Delete{
		Object: ref, AnyVersion: isNew,
		Because: because(CodeRestart, fmt.Sprintf("group %s is recreated: %s", d.name(), restart.Text(decision.Failure))),
		Tell:    action.Telling{Done: d.recreated(leader, decision)},
	}
}

// recreated tells that a group is recreated, and why.
func (d *groupDecision) recreated(leader *corev1.Pod, decision *restart.Decision) []action.Event {
	ref := identity.RefOf(identity.KindPod, leader)
	return []action.Event{*warning("RecreateGroup", "Delete", decision.Note(leader, d.name()), &ref)}
}
