package lws

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// CodeBudgetExceeded is the reason while a group that exhausted maxGroupRestarts is not recreated.
const CodeBudgetExceeded = "ReplicaRestartBudgetExceeded"

// Codes of delays: what other controllers, the scheduler or a kubelet cannot do for a group yet. They are stable.
const (
	CodeFailedCreate      = "FailedCreate"
	CodeGangUnschedulable = "GangUnschedulable"
	CodeUnschedulable     = "Unschedulable"
	CodeSchedulingGated   = "SchedulingGated"
	CodeImagePullFailed   = "ImagePullFailed"
)

var pullFailures = []string{
	"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed",
}

// DelayAfter is how long a delay lasts until it is reported. Most pods have no node for a moment.
const DelayAfter = 10 * time.Second

// CodeReleased is the reason to let a pod go that was kept as evidence.
const CodeReleased = "Released"

// IsExhausted reports whether the group of a leader exhausted maxGroupRestarts. The finalizer says
// so, from before the leader is deleted until its group may go.
func IsExhausted(leader *corev1.Pod) bool {
	return leader != nil && slices.Contains(leader.Finalizers, lwsv1.GroupRestartBudgetFinalizer)
}

// Kept returns the terminating pods of a set that have the finalizer. A name alone is not enough: the
// leader llama-3-0 of the set llama-3 has the name of a worker of the set llama.
func Kept(set string, lists ...[]*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Concat(lists...), func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp == nil || !IsExhausted(pod) || !workload.BearsName(pod, set)
	})
}

// ExhaustedText says what became of a group, and what a user does about it.
func ExhaustedText(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) string {
	return fmt.Sprintf("group %s failed once more than maxGroupRestarts allows and was stopped; to recreate it: kubectl annotate pod %s -n %s %s=true",
		workload.Of(leader).Name(), leader.Name, leader.Namespace, lwsv1.RecoverAnnotationKey)
}

// ReplicaFailure is why a Deployment cannot create pods, or empty.
func ReplicaFailure(deployment *appsv1.Deployment) string {
	for _, c := range deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	return ""
}

// PodDelay returns the code of what a pod waits for, or nothing, and from when on it is reported.
func PodDelay(pod *corev1.Pod) (code string, from time.Time) {
	scheduled, from := workload.Condition(pod, corev1.PodScheduled), pod.CreationTimestamp.Time
	wasGated := scheduled.Reason == corev1.PodReasonSchedulingGated
	if pod.DeletionTimestamp != nil || workload.IsGated(pod) || wasGated && len(pod.Spec.SchedulingGates) == 0 {
		return "", from
	}
	if pod.Spec.NodeName != "" {
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if c.State.Waiting != nil && slices.Contains(pullFailures, c.State.Waiting.Reason) {
				return CodeImagePullFailed, from
			}
		}
		return "", from
	}
	if gang.IsTied(pod) || gang.IsHanded(pod) { // a scheduler may say nothing of a pod that waits for others
		code = CodeGangUnschedulable
	}
	switch {
	case scheduled.Status != corev1.ConditionFalse:
	case wasGated:
		code, from = CodeSchedulingGated, scheduled.LastTransitionTime.Time
	case scheduled.Reason == corev1.PodReasonUnschedulable:
		code, from = cmp.Or(code, CodeUnschedulable), scheduled.LastTransitionTime.Time
	}
	if code == "" {
		return "", time.Time{}
	}
	return code, from.Add(DelayAfter)
}

// GroupReadyOf is the condition of a leader about its workers, or empty.
func GroupReadyOf(leader *corev1.Pod) corev1.ConditionStatus {
	return workload.Condition(leader, lwsv1.GroupReadyCondition).Status
}

// StartsWorkers reports whether a leader is ready as far as startupPolicy LeaderReady goes. A Hash leader is Ready
// only when its workers are: its containers count.
func StartsWorkers(leader *corev1.Pod) bool {
	return PodReady(leader) || workload.IsHashLeader(leader) && leader.Status.Phase == corev1.PodRunning &&
		workload.Condition(leader, corev1.ContainersReady).Status == corev1.ConditionTrue
}

// Release lets retained pods of a group end, workers before their leader: the StatefulSet creates
// another leader at once. What a cause relies on is read live.
func Release(retained []*corev1.Pod, leaderName, why string, relies ...action.Standing) (p Plan) {
	for _, pod := range retained {
		if pod.Name == leaderName && len(retained) > 1 {
			continue
		}
		p.Do(action.SetFinalizers{
			Object: identity.RefOf(identity.KindPod, pod),
			Finalizers: slices.DeleteFunc(slices.Clone(pod.Finalizers), func(f string) bool {
				return f == lwsv1.GroupRestartBudgetFinalizer
			}),
			Relies:  relies,
			Because: Because(CodeReleased, fmt.Sprintf("pod %s of a group that exhausted maxGroupRestarts may go: %s", pod.Name, why)),
		})
	}
	return p
}

// WorkersOf are the worker StatefulSets that a leader controls, terminating or not.
func WorkersOf(g *Group, leader *corev1.Pod) []*appsv1.StatefulSet {
	return slices.DeleteFunc(slices.Concat(g.Workers.Owned, g.Workers.Previous), func(sts *appsv1.StatefulSet) bool {
		return leader == nil || !metav1.IsControlledBy(sts, leader)
	})
}

// HasOwnSubdomain reports whether the group has a Service of its own: by the spec as its leader has it, or by its leader.
func (g *Group) HasOwnSubdomain(set *lwsv1.LeaderWorkerSet) bool {
	return workload.Subdomain(AsLed(set, g.Leader)) == lwsv1.SubdomainUniquePerReplica ||
		g.Leader != nil && workload.HasOwnService(g.Leader)
}

// Complete reports whether the group has its leader and its worker StatefulSet.
func (g *Group) Complete(set *lwsv1.LeaderWorkerSet) bool {
	return g.Leader != nil && (workload.SizeOf(g.Leader, set) == 1 || g.Workers.Own() != nil)
}

// Ready reports whether every pod of the group is ready. A group that is to be recreated, or stopped, is not.
func (g *Group) Ready(set *lwsv1.LeaderWorkerSet) bool {
	workers := g.Workers.Own()
	return len(g.Misspelt) == 0 && g.Complete(set) && PodReady(g.Leader) && (workers == nil || WorkersReady(workers)) &&
		restart.Of(set, g.Leader) == nil && !IsExhausted(g.Leader)
}

// UpToDate reports whether all parts of the group are at the revision key.
func (g *Group) UpToDate(key string) bool {
	workers := g.Workers.Own()
	return key != "" && g.Leader != nil && g.Leader.Labels[lwsv1.RevisionKey] == key &&
		(workers == nil || workers.Labels[lwsv1.RevisionKey] == key || workers.Spec.Template.Labels[lwsv1.RevisionKey] == key)
}

// PodReady reports whether a pod runs and is ready.
func PodReady(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && workload.Condition(pod, corev1.PodReady).Status == corev1.ConditionTrue
}

// WorkersReady judges by the StatefulSet's status, of whatever generation: the template
// of worker StatefulSets never changes.
func WorkersReady(sts *appsv1.StatefulSet) bool {
	return workload.PodsOf(sts) == sts.Status.AvailableReplicas &&
		sts.Status.CurrentRevision == sts.Status.UpdateRevision
}

// One returns 1 if something holds, else 0.
func One(yes bool) int32 {
	if yes {
		return 1
	}
	return 0
}

// AddLogs plans to add the ends of logs to the decision on a leader, one for each of its containers.
func AddLogs(leader *corev1.Pod, decision *restart.Decision, logs []restart.Log) (p Plan) {
	p.Do(action.Annotate{
		Object:      identity.RefOf(identity.KindPod, leader),
		Annotations: map[string]string{restart.AnnotationKey: decision.WithLogs(logs).Annotation()},
		Because:     Because(CodeRestart, "the logs of the containers that failed were read"),
	})
	return p
}

// IsBlocked reports whether objects of other owners, or of a previous incarnation, have names that the group needs.
func (g *Group) IsBlocked(size int32) bool {
	return len(g.Misspelt)+len(g.Workers.Foreign)+len(g.Pods.Foreign)+len(g.Gang.Previous)+len(g.Gang.Foreign) > 0 || len(g.Previous(size)) > 0
}

// WorkerCount is how many workers the group has.
func (g *Group) WorkerCount() int32 {
	if sts := g.Workers.Own(); sts != nil {
		return sts.Status.Replicas
	}
	return int32(len(g.Pods.Owned))
}
