package lwscache

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
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

// knowRevision reads the set's revisions unless the snapshot has the one with the key.
func (o *Observer) knowRevision(ctx context.Context, j *judge, w *lws.GroupSnapshot, key string) (err error) {
	if !lws.Knows(w.Revisions, w.Set.Name, key) {
		w.Revisions, err = o.revisionsWith(ctx, j, w.Set, key)
	}
	return err
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
	return found, nil
}

// revisionsFor returns the revisions that the decision about a set depends on: those in
// use, and the history where it is wanted.
func (o *Observer) revisionsFor(ctx context.Context, j *judge, w lws.SetSnapshot) (found revisionClaim, err error) {
	if found, err = o.revisionClaim(ctx, j, w.Set, o.revisions); err != nil {
		return found, err
	}
	w.Revisions = found
	if lws.WantsHistory(w) {
		return o.revisionClaim(ctx, j, w.Set, o.revisionsAndHistory)
	}
	return found, nil
}
