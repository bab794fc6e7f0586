package lwscache

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// readRevisions reads the revisions of a set.
type readRevisions func(context.Context, *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error)

// revisionClaim is revisions by what they are to a set.
type revisionClaim = identity.Claim[*appsv1.ControllerRevision]

// revisionsAndHistory returns the revisions in use and those that no group runs
// any more. The latter are not in the cache, which selects by the one label that
// they lack: they are wanted once for each change of a template, and read live.
func (o *Observer) revisionsAndHistory(ctx context.Context, set *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error) {
	all, err := o.revisions(ctx, set)
	if err != nil {
		return nil, err
	}
	var list appsv1.ControllerRevisionList
	if err := o.live.List(ctx, &list, client.InNamespace(set.Namespace), client.MatchingLabels{lws.HistoryLabelKey: set.Name}); err != nil {
		return nil, fmt.Errorf("list the history of %q: %w", set.Name, err)
	}
	for _, revision := range pointers(list.Items) {
		known := slices.IndexFunc(all, func(r *appsv1.ControllerRevision) bool { return r.UID == revision.UID })
		if known < 0 {
			all = append(all, revision)
			continue
		}
		all[known] = revision // the cache has not seen it filed away
	}
	return all, nil
}

// knowRevisions reads the set's revisions unless those with the keys are there. Each
// reading shows all that those before it did.
func (o *Observer) knowRevisions(ctx context.Context, j *judge, w *lws.GroupSnapshot, keys ...string) (err error) {
	for _, key := range keys {
		if lws.Knows(w.Revisions, w.Set.Name, key) {
			continue
		}
		if w.Revisions, err = o.revisionsWith(ctx, j, w.Set, key); err != nil {
			return err
		}
	}
	return nil
}

// revisionsWith returns the set's revisions, looked for ever further until the one with
// the key is among them.
func (o *Observer) revisionsWith(ctx context.Context, j *judge, set *lwsv1.LeaderWorkerSet, key string) (revisionClaim, error) {
	var found revisionClaim
	for _, read := range []readRevisions{o.revisions, o.revisionsAndHistory} {
		var err error
		if found, err = o.revisionClaim(ctx, j, set, read); err != nil || lws.Knows(found, set.Name, key) {
			return found, err
		}
	}
	return o.revisionsSought(ctx, j, set, found, func(all revisionClaim) []string {
		if lws.Knows(all, set.Name, key) {
			return nil
		}
		return []string{key}
	})
}

// revisionsFor returns the revisions that the decision about a set depends on: those in
// use, the history where it is wanted, and what groups run wherever it may be.
func (o *Observer) revisionsFor(ctx context.Context, j *judge, w lws.SetSnapshot) (found revisionClaim, err error) {
	if found, err = o.revisionClaim(ctx, j, w.Set, o.revisions); err != nil {
		return found, err
	}
	w.Revisions = found
	if lws.WantsHistory(w) {
		if found, err = o.revisionClaim(ctx, j, w.Set, o.revisionsAndHistory); err != nil {
			return found, err
		}
	}
	return o.revisionsSought(ctx, j, w.Set, found, func(all revisionClaim) []string { return lws.MissingRevisions(w, all) })
}

// revisionsSought returns the set's revisions, looked for everywhere where some are
// missing of those that were found. What was looked for in vain is lost, and nothing is
// listed for it with every look.
func (o *Observer) revisionsSought(ctx context.Context, j *judge, set *lwsv1.LeaderWorkerSet, found revisionClaim, missing func(revisionClaim) []string) (revisionClaim, error) {
	if o.memory.soughtLately(set, missing(found), o.now) {
		return found, nil
	}
	found, err := o.revisionClaim(ctx, j, set, o.revisionsUncovered)
	if err == nil {
		o.memory.sought(set, missing(found), o.now)
	}
	return found, err
}

// revisionsUncovered returns also those whose labels somebody took, so that neither the
// cache nor the history shows them. Their owner tells whose they are.
func (o *Observer) revisionsUncovered(ctx context.Context, set *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error) {
	if err := o.uncoverRevisions(ctx, set); err != nil {
		return nil, err
	}
	return o.revisionsAndHistory(ctx, set)
}

// uncoverRevisions looks for them among all revisions of the namespace.
func (o *Observer) uncoverRevisions(ctx context.Context, set *lwsv1.LeaderWorkerSet) error {
	known, err := o.revisions(ctx, set)
	if err != nil {
		return err
	}
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ControllerRevisionList"}}
	if err := o.live.List(ctx, list, client.InNamespace(set.Namespace)); err != nil {
		return fmt.Errorf("list revisions in %q: %w", set.Namespace, err)
	}
	unseen := slices.DeleteFunc(list.Items, func(item metav1.PartialObjectMetadata) bool {
		return !metav1.IsControlledBy(&item, set) || item.Labels[lws.HistoryLabelKey] == set.Name ||
			slices.ContainsFunc(known, func(r *appsv1.ControllerRevision) bool { return r.UID == item.UID })
	})
	for i := range unseen {
		if _, _, err := o.uncover(ctx, name{kind: identity.KindControllerRevision, namespace: set.Namespace, name: unseen[i].Name}); err != nil {
			return err
		}
	}
	return nil
}

// sought remembers the keys of revisions of a set that were looked for everywhere, in vain.
func (m *Memory) sought(set *lwsv1.LeaderWorkerSet, keys []string, at time.Time) {
	m.note(set, func(w *writes) {
		still := map[string]time.Time{} // the one before was handed out
		for key, before := range w.sought {
			if at.Sub(before) < lookAgainAfter {
				still[key] = before
			}
		}
		for _, key := range keys {
			still[key] = at
		}
		w.sought = still
	})
}

// soughtLately tells whether all of the keys were.
func (m *Memory) soughtLately(set *lwsv1.LeaderWorkerSet, keys []string, now time.Time) bool {
	lately := m.writesOf(set).sought
	return !slices.ContainsFunc(keys, func(key string) bool {
		at, known := lately[key]
		return !known || now.Sub(at) >= lookAgainAfter
	})
}
