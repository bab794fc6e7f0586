package revision

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

const (
	// HistoryLabelKey on a revision that no group runs is the set's name, in place of the label that
	// revisions in use have.
	HistoryLabelKey = "lockstep.dev/history-of"

	// ChangeCauseAnnotationKey on a set is why its user changed it. Kubernetes'
	// own tools write and show it.
	ChangeCauseAnnotationKey = "kubernetes.io/change-cause"
)

// Title names a revision by its number and its key. A number that is unknown is 0.
func Title(number int64, key string) string {
	if number == 0 {
		return key
	}
	return fmt.Sprintf("%d (%s)", number, key)
}

// Counting returns the revisions that count, in no particular order: genuine ones that the set owns
// or adopts.
func Counting(claim identity.Claim[*appsv1.ControllerRevision], setName string) []*appsv1.ControllerRevision {
	return slices.DeleteFunc(slices.Concat(claim.Owned, claim.Orphans), func(r *appsv1.ControllerRevision) bool { return !Genuine(r, setName) })
}

// WithKey returns the latest revision with the key, or nil. A revision whose data
// hashes to the key precedes one that was created again under the key.
func WithKey(revisions []*appsv1.ControllerRevision, key string) *appsv1.ControllerRevision {
	keyed := func(r *appsv1.ControllerRevision) bool { return r.Labels[lwsv1.RevisionKey] == key }
	exact := Latest(revisions, func(r *appsv1.ControllerRevision) bool { return keyed(r) && Key(r.Data.Raw) == key })
	if exact != nil {
		return exact
	}
	return Latest(revisions, keyed)
}

// RestoredAt returns the set as it was at the revision with the key.
func RestoredAt(set *lwsv1.LeaderWorkerSet, revisions identity.Claim[*appsv1.ControllerRevision], key string) (*lwsv1.LeaderWorkerSet, error) {
	found := WithKey(Counting(revisions, set.Name), key)
	if found == nil {
		return nil, fmt.Errorf("there is no revision %q", key)
	}
	restored, err := Restore(set, found.Data.Raw)
	if err != nil {
		return nil, fmt.Errorf("revision %s cannot be read: %w", found.Name, err)
	}
	return restored, nil
}

// Latest returns the revision that fits and has the highest number, by name among equals: a
// cache lists in any order.
func Latest(revisions []*appsv1.ControllerRevision, fits func(*appsv1.ControllerRevision) bool) *appsv1.ControllerRevision {
	var found *appsv1.ControllerRevision
	for _, r := range revisions {
		if fits(r) && (found == nil || r.Revision > found.Revision || r.Revision == found.Revision && r.Name < found.Name) {
			found = r
		}
	}
	return found
}

// Knows reports whether the revisions include one of the set with the key.
func Knows(revisions identity.Claim[*appsv1.ControllerRevision], setName, key string) bool {
	return WithKey(Counting(revisions, setName), key) != nil
}

// InUse reports whether a revision is listed among those that groups run.
func InUse(revision *appsv1.ControllerRevision, setName string) bool {
	return workload.BearsName(revision, setName)
}

// InHistory reports whether a revision is one that no group runs.
func InHistory(revision *appsv1.ControllerRevision, setName string) bool {
	return revision.Labels[HistoryLabelKey] == setName
}
