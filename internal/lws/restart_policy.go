package lws

import (
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Recreates tells whether groups of the set are recreated when a pod of theirs
// fails. A set that does not say has the policy that the schema gives it.
func Recreates(set *lwsv1.LeaderWorkerSet) bool {
	switch set.Spec.LeaderWorkerTemplate.RestartPolicy {
	case lwsv1.NoneRestartPolicy, lwsv1.DeprecatedDefaultRestartPolicy:
		return false
	}
	return true
}

// afterStart tells whether what fails before all pods of a group ran is left to
// restart alone.
func afterStart(set *lwsv1.LeaderWorkerSet) bool {
	_, annotated := set.Annotations[lwsv1.RecreateGroupAfterStartAnnotationKey]
	return annotated || set.Spec.LeaderWorkerTemplate.RestartPolicy == lwsv1.RecreateGroupAfterStart
}

// recreatesGroup tells whether the policy that the group was made under recreates
// it too. A change of the policy rolls the groups, and holds for each from then
// on; only None holds at once for all. A group whose revision is lost has the
// policy of the set.
func (d *setDecision) recreatesGroup(revisionKey string) bool {
	if revisionKey == d.statefulSetKey() && revisionKey == d.key {
		return true
	}
	revision := d.revisionWithKey(revisionKey)
	if revision == nil {
		return true
	}
	restored, err := Restore(d.Set, revision.Data.Raw)
	return err != nil || Recreates(restored)
}
