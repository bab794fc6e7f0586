package observe

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

// readRevisions reads the revisions of a set.
type readRevisions func(context.Context, *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error)

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
