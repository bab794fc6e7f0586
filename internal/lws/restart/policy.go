package restart

import (
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

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
