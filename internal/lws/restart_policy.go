package lws

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
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

// madeUnder returns a set as its groups at a revision were made. A change of the policy
// rolls the groups and holds for each from then on; None alone holds at once for all. A
// group whose revision is lost goes by the set.
func madeUnder(set *lwsv1.LeaderWorkerSet, revisions identity.Claim[*appsv1.ControllerRevision], key string) *lwsv1.LeaderWorkerSet {
	revision := revisionWithKey(countingRevisions(revisions, set.Name), key)
	if revision == nil {
		return set
	}
	restored, err := Restore(set, revision.Data.Raw)
	if err != nil {
		return set
	}
	return restored
}

// forgivesStart reports whether failures before all pods of the group ran do not recreate
// it.
func forgivesStart(set *lwsv1.LeaderWorkerSet, revisions identity.Claim[*appsv1.ControllerRevision], leader *corev1.Pod) bool {
	if forgivesAnyStart(set, leader) {
		return true
	}
	made := madeUnder(set, revisions, leader.Labels[lwsv1.RevisionKey])
	return !Recreates(made) || made.Spec.LeaderWorkerTemplate.RestartPolicy == lwsv1.RecreateGroupAfterStart
}

// forgivesAnyStart reports the same without the policy of the leader's revision: by the
// annotation, which is in no revision, or because the leader is from before restartsSince.
func forgivesAnyStart(set *lwsv1.LeaderWorkerSet, leader *corev1.Pod) bool {
	_, annotated := set.Annotations[lwsv1.RecreateGroupAfterStartAnnotationKey]
	since := set.Status.RestartsSince
	return annotated || since == nil || leader.CreationTimestamp.Before(since)
}

// answered reports whether the policy of the leader's revision recreates the group now.
// It asks for the revision if that is not read yet.
func (d *groupDecision) answered(leader *corev1.Pod) bool {
	key := leader.Labels[lwsv1.RevisionKey]
	if !d.Sought && !Knows(d.Revisions, d.Set.Name, key) {
		d.plan.Needs = NeedRevision
		return false
	}
	if recordOfLeader(d.Set, d.Index, leader.UID) != nil {
		return Recreates(madeUnder(d.Set, d.Revisions, key))
	}
	return !forgivesStart(d.Set, d.Revisions, leader)
}
