package lws

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
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

// madeUnder is a set as its groups at a revision were made: a change of the policy
// rolls the groups, and holds for each from then on. Only None holds at once for all.
// A group whose revision is lost goes by the set.
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

// recreatesGroup tells whether the policy that a group was made under recreates it.
func (d *setDecision) recreatesGroup(revisionKey string) bool {
	if revisionKey == d.statefulSetKey() && revisionKey == d.key {
		return Recreates(d.Set)
	}
	return Recreates(madeUnder(d.Set, d.Revisions, revisionKey))
}

// forgiven tells whether what fails under a leader before all pods of its group ran
// is nothing to the group: by what holds for all groups, or by its own policy.
func (d *groupDecision) forgiven(leader *corev1.Pod) bool {
	if d.forgivenAnyway(leader) {
		return true
	}
	led := madeUnder(d.Set, d.Revisions, leader.Labels[lwsv1.RevisionKey])
	return led.Spec.LeaderWorkerTemplate.RestartPolicy == lwsv1.RecreateGroupAfterStart
}

// forgivenAnyway tells whether that is so whatever policy the group was made under:
// by the annotation, which is in no revision, or because the leader is from before
// failures were watched for.
func (d *groupDecision) forgivenAnyway(leader *corev1.Pod) bool {
	_, annotated := d.Set.Annotations[lwsv1.RecreateGroupAfterStartAnnotationKey]
	since := d.Set.Status.RestartsSince
	return annotated || since == nil || leader.CreationTimestamp.Before(since)
}

// PoliciesAsked are the keys of the revisions whose policy says whether the group
// failed: those of leaders under which something failed in the start. There are none
// while nothing did, once the group has started, and once it is known to have failed:
// no look at rest reads a revision for this.
func PoliciesAsked(w GroupSnapshot) []string {
	if !Recreates(w.Set) {
		return nil
	}
	d := &groupDecision{GroupSnapshot: &w, known: w.known()}
	var asked []string
	for _, leader := range []*corev1.Pod{d.Departed, d.Leaving, d.Leader} {
		if leader != nil && d.asksPolicy(leader) {
			asked = append(asked, leader.Labels[lwsv1.RevisionKey])
		}
	}
	return asked
}

func (d *groupDecision) asksPolicy(leader *corev1.Pod) bool {
	switch {
	case d.forgivenAnyway(leader), Failed(d.Set, d.Index, leader.UID) != nil:
		return false
	case leader == d.Leader:
		return !d.foundFailed(leader) && len(d.record()) == 0 && d.mishapInStart() != nil
	}
	return endedBefore(leader) && !isRecorded(d.Set, d.Index, leader.UID) // its last words are weighed with each look
}

// foundFailed tells whether the group under a leader is known to have failed, by its
// set or by an earlier look.
func (w *GroupSnapshot) foundFailed(leader *corev1.Pod) bool {
	return Failed(w.Set, w.Index, leader.UID) != nil || w.Finding.Failure != nil && w.Finding.Leader.UID == leader.UID
}
