package lws

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/status"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// CodeBudgetExceeded is the reason while a group that exhausted maxGroupRestarts is not recreated.
const CodeBudgetExceeded = "ReplicaRestartBudgetExceeded"

// IsExhausted reports whether the group of a leader exhausted maxGroupRestarts. The finalizer says
// so, from before the leader is deleted until its group may go.
func IsExhausted(leader *corev1.Pod) bool {
	return leader != nil && slices.Contains(leader.Finalizers, lwsv1.GroupRestartBudgetFinalizer)
}

// isKept reports whether a terminating pod has the finalizer.
func isKept(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil && IsExhausted(pod) }

// Kept returns the terminating pods of a set that have the finalizer. A name alone is not enough: the
// leader llama-3-0 of the set llama-3 has the name of a worker of the set llama.
func Kept(set string, lists ...[]*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Concat(lists...), func(pod *corev1.Pod) bool { return !isKept(pod) || !workload.BearsName(pod, set) })
}

// exhaust marks a leader whose group failed once too often, and ends the group. The leader goes
// first: whatever ends in between, the mark says what is left to do.
func (d *groupDecision) exhaust(failure *restart.Failure) {
	decision, why := d.decide(d.Leader, failure), failureText(d.name(), failure)
	d.plan.do(action.SetFinalizers{
		Object:     identity.RefOf(identity.KindPod, d.Leader),
		Finalizers: append(slices.Clone(d.Leader.Finalizers), lwsv1.GroupRestartBudgetFinalizer),
		Annotations: map[string]string{
			restart.AnnotationKey:                          decision.Annotation(),
			lwsv1.GroupRestartBudgetExhaustedAnnotationKey: "true",
			lwsv1.RecoverAnnotationKey:                     "", // one from before does not recover the group
		},
		Because: because(CodeBudgetExceeded, why+", and maxGroupRestarts allows no more"),
		Tell:    action.Telling{Failures: []action.Failure{{Code: failure.Code, ExitCode: failure.ExitCode}}},
	})
	d.stop(true)
}

// stop ends a group whose leader is marked, and its pods stay without their containers. The garbage
// collector deletes the workers with their leader.
func (d *groupDecision) stop(isNew bool) {
	d.mark(d.Leader)
	ref := identity.RefOf(identity.KindPod, d.Leader)
	d.plan.do(action.Delete{
		Object: ref, AnyVersion: isNew, Foreground: true, Because: d.stopping(),
		Tell: action.Telling{Done: []action.Event{{
			Warning: true, Reason: CodeBudgetExceeded, Action: "Delete", Related: &ref,
			Note: fmt.Sprintf("Restart budget exhausted; terminated group %s and stopped automatic recovery", d.name()),
		}}},
	})
}

// stopped ends what is left of a group whose leader is terminating: a user may have deleted that in another way.
func (d *groupDecision) stopped(leader *corev1.Pod) {
	if !d.retained() {
		return
	}
	d.mark(leader)
	if slices.Contains(leader.Finalizers, metav1.FinalizerDeleteDependents) && len(d.unowned(leader)) == 0 {
		return // the garbage collector deletes the rest
	}
	d.deleteGroup(leader, nil, false, d.stopping())
}

func (d *groupDecision) stopping() action.Reason {
	return because(CodeBudgetExceeded, fmt.Sprintf("group %s failed once more than maxGroupRestarts allows, and is not recreated", d.name()))
}

// mark gives the living workers of a leader's StatefulSet the finalizer.
func (d *groupDecision) mark(leader *corev1.Pod) {
	var unmarked []*corev1.Pod
	for _, sts := range WorkersOf(&d.Group, leader) {
		for _, pod := range slices.Concat(d.Pods.Owned, d.Pods.Previous) {
			if metav1.IsControlledBy(pod, sts) && pod.DeletionTimestamp == nil && !IsExhausted(pod) {
				unmarked = append(unmarked, pod)
			}
		}
	}
	for _, pod := range sorted(bearersOf(identity.KindPod, unmarked)) {
		d.plan.do(action.SetFinalizers{
			Object:     pod.Ref,
			Finalizers: append(slices.Clone(pod.object.GetFinalizers()), lwsv1.GroupRestartBudgetFinalizer),
			Because:    because(CodeBudgetExceeded, fmt.Sprintf("pod %s stays as evidence of why group %s failed", pod.Name, d.name())),
		})
	}
}

// exhausted keeps a group that was stopped until a cause to let it go, and then lets it go. It
// reports whether the rules after it go on.
func (d *groupDecision) exhausted() bool {
	leader := cmp.Or(d.Leaving, d.Former)
	if IsExhausted(d.Leader) {
		return true // it is marked, and not deleted yet
	}
	if !IsExhausted(leader) {
		d.plan.add(Release(d.Kept, d.LeaderName, "its leader is gone"))
		return len(d.plan.Actions) == 0
	}
	entry := restart.Entry(d.Set, d.Index)
	switch why := d.endOfRetention(leader); {
	case why == "":
		d.stopped(leader)
		d.plan.await(d.Now.Add(conflictLook), CodeBudgetExceeded, exhaustedText(leader))
	case restart.IsRecovered(leader) && entry != nil && entry.Recreations != nil:
		d.plan.await(d.Now.Add(conflictLook), CodeBudgetExceeded, fmt.Sprintf("group %s is recreated once its count is cleared", d.name()))
	default:
		d.parallel()
		d.plan.add(Release(d.Kept, d.LeaderName, why, d.reliedSpec()...))
	}
	return false
}

// reliedSpec is the spec of the leader StatefulSet or Deployment as it was judged: the cache of a process that
// started just now may show an earlier one.
func (d *groupDecision) reliedSpec() []action.Standing {
	switch {
	case d.LeaderSet != nil:
		return []action.Standing{specified(identity.KindStatefulSet, d.LeaderSet)}
	case d.Deployment != nil:
		return []action.Standing{specified(identity.KindDeployment, d.Deployment)}
	}
	return nil
}

// endOfRetention says why a group that was stopped may go, or is empty. A leader whose StatefulSet
// the set will adopt stays.
func (d *groupDecision) endOfRetention(leader *corev1.Pod) string {
	switch {
	case leader == d.Former && (d.FormerOwner == nil || d.FormerOwner.DeletionTimestamp != nil):
		return "its StatefulSet is gone or going"
	case leader == d.Former:
		return ""
	case d.scaledAway():
		return "it was scaled away"
	case d.rolled(leader):
		return "the rollout replaces it"
	case restart.IsRecovered(leader):
		return "it is recovered"
	}
	return ""
}

// exhaustedText says what became of a group, and what a user does about it.
func exhaustedText(leader *corev1.Pod) string {
	return fmt.Sprintf("group %s failed once more than maxGroupRestarts allows and was stopped; to recreate it: kubectl annotate pod %s -n %s %s=true",
		nameOf(leader), leader.Name, leader.Namespace, lwsv1.RecoverAnnotationKey)
}

// exhaustedLeaders returns the leaders of groups that were stopped, or are to be, by index. Groups of a
// surge count: their rollout waits for them.
func (d *setDecision) exhaustedLeaders() map[int]*corev1.Pod {
	found, end := map[int]*corev1.Pod{}, workload.Replicas(d.Set)
	if sts := d.StatefulSet.Own(); sts != nil {
		end = max(end, workload.PodsOf(sts))
	}
	for _, leader := range d.leadersAndLeaving() {
		if index := workload.IndexOf(leader); IsExhausted(leader) && (workload.IsHashLeader(leader) || int32(index) < end) {
			found[index] = leader
		}
	}
	return found
}

// degradedText names the groups that were stopped, or is empty.
func (d *setDecision) degradedText() string {
	var texts []string
	for _, index := range slices.Sorted(maps.Keys(d.exhaustedBy)) {
		texts = append(texts, exhaustedText(d.exhaustedBy[index]))
	}
	return listed(texts, "; ")
}

// rollsExhausted reports whether the rollout is to replace a group that was stopped.
func (d *setDecision) rollsExhausted() bool {
	for index, leader := range d.exhaustedBy {
		if (workload.IsHashLeader(leader) || int32(index) >= workload.Partition(d.Set)) && leader.Labels[lwsv1.RevisionKey] != d.targetKey() {
			return true
		}
	}
	return false
}

// degraded returns the conditions about progress while groups are stopped. It is False that the set
// progresses, unless something beside these groups does.
func (d *setDecision) degraded(progress []metav1.Condition) []metav1.Condition {
	says := func(kind lwsv1.LeaderWorkerSetConditionType, message string) metav1.Condition {
		return status.Ceased(status.Holding(kind, CodeBudgetExceeded, message))
	}
	if condition.IsTrue(progress, string(lwsv1.LeaderWorkerSetAvailable)) { // only surge groups were stopped
		return progress
	}
	unavailable := says(lwsv1.LeaderWorkerSetAvailable, "Not all replicas are ready")
	if d.wantedReady == workload.Replicas(d.Set) {
		unavailable.Message = "Not all replicas are up to date"
	}
	still := says(lwsv1.LeaderWorkerSetUpdateInProgress, "No rolling update is in progress")
	isWhole := d.wantedReady+d.States[GroupExhausted] == workload.Replicas(d.Set) && d.TargetReady == d.current
	stops := d.refusal == "" && d.hindrance == "" && !d.held && !d.waiting.any() && d.pauseText() == ""
	if isWhole && stops && !d.rollsExhausted() {
		return []metav1.Condition{says(lwsv1.LeaderWorkerSetProgressing, "Automatic recovery is stopped for one or more replicas"), unavailable, still}
	}
	if condition.IsTrue(progress, still.Type) {
		return append(progress, unavailable)
	}
	return append(progress, unavailable, still)
}
