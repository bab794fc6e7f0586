package lwscache

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/revision"
)

// Revisions returns the revisions of a set by rising number: those in use, and those of its history,
// which the cache does not hold.
func Revisions(ctx context.Context, live client.Reader, set *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error) {
	all := map[types.UID]*appsv1.ControllerRevision{}
	for _, label := range []string{lwsv1.SetNameLabelKey, revision.HistoryLabelKey} {
		if err := listRevisions(ctx, live, all, client.InNamespace(set.Namespace), client.MatchingLabels{label: set.Name}); err != nil {
			return nil, fmt.Errorf("set %q: %w", set.Name, err)
		}
	}
	own := slices.DeleteFunc(slices.Collect(maps.Values(all)), func(r *appsv1.ControllerRevision) bool {
		return !metav1.IsControlledBy(r, set) || !revision.Genuine(r, set.Name)
	})
	slices.SortFunc(own, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name, b.Name))
	})
	return own, nil
}
