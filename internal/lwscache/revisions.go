package lwscache

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
)

// revisions classifies the ControllerRevisions that the set's UID owns and those with its label,
// and the history if asked for. The history lacks the label that the cache selects by. A decision
// asks for it once for each change of a template: it is read live.
func (r *reading) revisions(ctx context.Context, history bool) (claim identity.Claim[*appsv1.ControllerRevision], err error) {
	all := map[types.UID]*appsv1.ControllerRevision{}
	for _, key := range []string{byUID(string(r.set.UID)), byName(r.set.Name)} {
		if err := listRevisions(ctx, r.cached, all, client.InNamespace(r.set.Namespace), client.MatchingFields{indexClaim: key}); err != nil {
			return claim, err
		}
	}
	if err := r.readTakenRevisions(ctx, all); err != nil {
		return claim, err
	}
	if history { // the cache may still show one of them as in use
		if err := listRevisions(ctx, r.live, all, client.InNamespace(r.set.Namespace), client.MatchingLabels{revision.HistoryLabelKey: r.set.Name}); err != nil {
			return claim, err
		}
	}
	found := slices.SortedFunc(maps.Values(all), func(a, b *appsv1.ControllerRevision) int { return strings.Compare(a.Name, b.Name) })
	return sorted(ctx, r, found, identity.Claimant{r.set.UID}, func(c *appsv1.ControllerRevision) bool { return revision.Genuine(c, r.set.Name) })
}

func listRevisions(ctx context.Context, from client.Reader, into map[types.UID]*appsv1.ControllerRevision, options ...client.ListOption) error {
	var list appsv1.ControllerRevisionList
	if err := from.List(ctx, &list, options...); err != nil {
		return fmt.Errorf("list revisions: %w", err)
	}
	for _, revision := range pointers(list.Items) {
		if !OfStatefulSet(revision) {
			into[revision.UID] = revision
		}
	}
	return nil
}

// readTakenRevisions reads live the revisions of a set whose names a create found taken.
func (r *reading) readTakenRevisions(ctx context.Context, into map[types.UID]*appsv1.ControllerRevision) error {
	for _, n := range r.memory.takenOf(client.ObjectKeyFromObject(r.set), identity.KindControllerRevision) {
		found, err := named(ctx, r.Observer, n.Kind, types.NamespacedName{Namespace: n.Namespace, Name: n.Name}, &appsv1.ControllerRevision{})
		if err != nil {
			return err
		}
		for _, revision := range found {
			into[revision.UID] = revision
		}
	}
	return nil
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
