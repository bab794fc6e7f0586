package restart

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Group is a leader, and the objects under names of its workers.
type Group struct {
	Set     *lwsv1.LeaderWorkerSet
	Index   int
	Leader  *corev1.Pod
	Workers identity.Claim[*appsv1.StatefulSet]
	Pods    identity.Claim[*corev1.Pod]
	// KeepsLogs is set where the logs of failed containers are kept.
	KeepsLogs bool
	// HoldsNames is set if no pod under the names of the group is scheduled for a while after one was drained.
	HoldsNames bool
}

// Failure is why a group is to be recreated.
type Failure struct {
	// Code is one of those below. Only who found the failure knows it.
	Code string `json:"-"`
	// PodFailure is the evidence.
	lwsv1.PodFailure `json:"failure"`
	// Disrupted is set if a pod of the group was drained, preempted or evicted, or a user asked to recreate the group.
	// The failure then counts neither for the back-off nor for maxGroupRestarts.
	Disrupted bool `json:"disrupted,omitempty"`
	// isDrained is set if a pod of the group was evicted through the API, as a drain does, or is gone without evidence.
	isDrained bool
	// Disruption is the reason for which the pod that failed was disrupted, or empty.
	Disruption string `json:"disruption,omitempty"`
	// Containers are those that failed with the group.
	Containers []lwsv1.ContainerFailure `json:"containers,omitempty"`
}

// Codes of failures. They are stable.
const (
	CodePodRestarted     = "PodRestarted"
	CodePodEnded         = "PodEnded"
	CodePodDeleted       = "PodDeleted"
	CodePodEvicted       = "PodEvicted"
	CodePodGone          = "PodGone"
	CodeWorkersetDeleted = "StatefulSetDeleted"
	CodeLeaderReplaced   = "LeaderReplaced"
	CodeRequested        = "Requested"
)

// absent is the failure of a pod that left no evidence.
func absent(code, pod string, now time.Time) *Failure {
	return &Failure{Code: code, isDrained: true, PodFailure: lwsv1.PodFailure{Pod: pod, Reason: code, At: moment(now)}}
}

// IsRequested reports whether a user asks to recreate the group of a leader.
func IsRequested(leader *corev1.Pod) bool {
	_, isRequested := leader.Annotations[lwsv1.RecreateAnnotationKey]
	return isRequested
}

// requested is the failure of a leader that asks to be recreated: a disruption, under every policy and at every time.
func requested(leader *corev1.Pod, now time.Time) *Failure {
	return &Failure{Code: CodeRequested, Disrupted: true, PodFailure: lwsv1.PodFailure{
		Pod: leader.Name, Node: leader.Spec.NodeName, Reason: CodeRequested,
		Message: lastLines(leader.Annotations[lwsv1.RecreateAnnotationKey]), At: moment(now),
	}}
}

// TerminationTarget is the condition of a pod that Kueue is about to delete.
const TerminationTarget corev1.PodConditionType = "TerminationTarget"

// disruption returns why a pod is drained, preempted or evicted, by Kubernetes or by Kueue, or is empty. Of Kueue, and of
// controllers with reasons of their own, the type of the condition says enough.
func disruption(pod *corev1.Pod) string {
	target := workload.Condition(pod, corev1.DisruptionTarget)
	switch {
	case workload.Condition(pod, TerminationTarget).Status == corev1.ConditionTrue:
		return string(TerminationTarget)
	case target.Status != corev1.ConditionTrue:
		return ""
	case outcomes[target.Reason].cause == Disruption || outcomes[target.Reason].cause == LostNode:
		return target.Reason
	}
	return string(target.Type)
}

// reasonEvicted is the reason of a disruption by the eviction API.
const reasonEvicted = "EvictionByEvictionAPI"

// Recreates reports whether the policy of a set recreates groups when a pod of theirs fails.
func Recreates(set *lwsv1.LeaderWorkerSet) bool {
	return RecreatesBy(set.Spec.LeaderWorkerTemplate.RestartPolicy)
}

// RecreatesBy reports the same of a policy. A set without one has the default of the schema.
func RecreatesBy(policy lwsv1.RestartPolicyType) bool {
	return policy != lwsv1.NoneRestartPolicy && policy != lwsv1.DeprecatedDefaultRestartPolicy
}

// ForgivesStart reports whether failures before all pods of the group ran do not recreate it. policy is that of the
// leader's revision.
func ForgivesStart(set *lwsv1.LeaderWorkerSet, policy lwsv1.RestartPolicyType, leader *corev1.Pod) bool {
	return ForgivesAnyStart(set, leader) || !RecreatesBy(policy) || policy == lwsv1.RecreateGroupAfterStart
}

// ForgivesAnyStart reports the same without the policy of the leader's revision: by the
// annotation, which is in no revision, or because the leader is from before restartsSince.
func ForgivesAnyStart(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) bool {
	_, annotated := set.Annotations[lwsv1.RecreateGroupAfterStartAnnotationKey]
	since := set.Status.RestartsSince
	return annotated || since == nil || leader.CreationTimestamp.Before(since)
}
