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

// revisionClaim is revisions by their class.
type revisionClaim = identity.Claim[*appsv1.ControllerRevision]

// revisionsAndHistory returns the revisions in use and the history. The cache does not hold
// the history, which lacks the label that the cache selects by. A decision asks for it once
// for each change of a template: it is read live.
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
		all[known] = revision // the cache still holds it as in use
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

// revisionsWith returns the revisions in use, and the history as well if the key is not among
// them.
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
