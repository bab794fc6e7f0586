package restart

import (
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Recreates reports whether the policy recreates groups when a pod of theirs fails. A set
// without a policy has the default of the schema.
func Recreates(set *lwsv1.LeaderWorkerSet) bool {
	switch set.Spec.LeaderWorkerTemplate.RestartPolicy {
	case lwsv1.NoneRestartPolicy, lwsv1.DeprecatedDefaultRestartPolicy:
		return false
	}
	return true
}

// ForgivesStart reports whether failures before all pods of the group ran do not recreate
// it. made is the set at the revision of the leader.
func ForgivesStart(set, made *lwsv1.LeaderWorkerSet, leader *corev1.Pod) bool {
	return ForgivesAnyStart(set, leader) || !Recreates(made) ||
		made.Spec.LeaderWorkerTemplate.RestartPolicy == lwsv1.RecreateGroupAfterStart
}

// ForgivesAnyStart reports the same without the policy of the leader's revision: by the
// annotation, which is in no revision, or because the leader is from before restartsSince.
func ForgivesAnyStart(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) bool {
	_, annotated := set.Annotations[lwsv1.RecreateGroupAfterStartAnnotationKey]
	since := set.Status.RestartsSince
	return annotated || since == nil || leader.CreationTimestamp.Before(since)
}
