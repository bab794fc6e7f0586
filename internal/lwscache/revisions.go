package lwscache

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
)

// revisions classifies the ControllerRevisions that the set's UID owns and those with its label,
// and the history if asked for. The history lacks the label that the cache selects by. A decision
// asks for it once for each change of a template: it is read live.
func (r *reading) revisions(ctx context.Context, history bool) (claim identity.Claim[*appsv1.ControllerRevision], err error) {
	var found []*appsv1.ControllerRevision
	if history { // the cache may still show one of them as in use
		if found, err = listRevisions(ctx, r.live, r.set, client.MatchingLabels{revision.HistoryLabelKey: r.set.Name}); err != nil {
			return claim, err
		}
	}
	for _, n := range r.memory.TakenOf(client.ObjectKeyFromObject(r.set), identity.KindControllerRevision) {
		taken, err := named(ctx, r.Observer, n.Kind, types.NamespacedName{Namespace: n.Namespace, Name: n.Name}, &appsv1.ControllerRevision{})
		if err != nil {
			return claim, err
		}
		found = append(found, taken...)
	}
	for _, key := range []string{byUID(string(r.set.UID)), byName(r.set.Name)} {
		cached, err := listRevisions(ctx, r.cached, r.set, keyed(key))
		if err != nil {
			return claim, err
		}
		found = append(found, cached...)
	}
	return sorted(ctx, r, once(found), identity.Claimant{r.set.UID}, func(c *appsv1.ControllerRevision) bool { return revision.Genuine(c, r.set.Name) })
}

// listRevisions lists revisions in the namespace of a set that are no history of a StatefulSet.
func listRevisions(ctx context.Context, from client.Reader, set *lwsv1.LeaderWorkerSet, which client.ListOption) ([]*appsv1.ControllerRevision, error) {
	all, err := listed[*appsv1.ControllerRevision](ctx, from, &appsv1.ControllerRevisionList{}, "revisions", client.InNamespace(set.Namespace), which)
	return slices.DeleteFunc(all, func(r *appsv1.ControllerRevision) bool { return OfStatefulSet(r) }), err
}

// once sorts revisions by name, and returns the first of each UID.
func once(all []*appsv1.ControllerRevision) []*appsv1.ControllerRevision {
	slices.SortStableFunc(all, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return slices.CompactFunc(all, func(a, b *appsv1.ControllerRevision) bool { return a.UID == b.UID })
}

// OfStatefulSet reports whether a revision is a StatefulSet's own history. It has the labels of
// the pod template, and so ours.
func OfStatefulSet(revision metav1.Object) bool {
	owner := metav1.GetControllerOfNoCopy(revision)
	return owner != nil && owner.Kind == string(identity.KindStatefulSet)
}

// knowRevision reads the set's revisions until the snapshot has the one with the key: those in
// use, then the history as well.
func (r *reading) knowRevision(ctx context.Context, w *lws.GroupSnapshot, key string) (err error) {
	for _, history := range []bool{false, true} {
		if err == nil && !revision.Knows(w.Revisions, w.Set.Name, key) {
			w.Revisions, err = r.revisions(ctx, history)
		}
	}
	return err
}

// Revisions returns the revisions of a set by rising number: those in use, and those of its history,
// which the cache does not hold.
func Revisions(ctx context.Context, live client.Reader, set *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error) {
	var found []*appsv1.ControllerRevision
	for _, label := range []string{lwsv1.SetNameLabelKey, revision.HistoryLabelKey} {
		labelled, err := listRevisions(ctx, live, set, client.MatchingLabels{label: set.Name})
		if err != nil {
			return nil, fmt.Errorf("set %q: %w", set.Name, err)
		}
		found = append(found, labelled...)
	}
	own := slices.DeleteFunc(once(found), func(r *appsv1.ControllerRevision) bool {
		return !metav1.IsControlledBy(r, set) || !revision.Genuine(r, set.Name)
	})
	slices.SortStableFunc(own, func(a, b *appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	return own, nil
}
