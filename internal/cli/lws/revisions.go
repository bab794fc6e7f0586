package lws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/revision"
)

// Revisions returns the revisions of a set by rising number: those in use, and those of its history,
// which the cache does not hold.
func Revisions(ctx context.Context, live client.Reader, set *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error) {
	var found []*appsv1.ControllerRevision
	for _, label := range []string{lwsv1.SetNameLabelKey, revision.HistoryLabelKey} {
		var list appsv1.ControllerRevisionList
		if err := live.List(ctx, &list, client.InNamespace(set.Namespace), client.MatchingLabels{label: set.Name}); err != nil {
			return nil, fmt.Errorf("list the revisions of %q: %w", set.Name, err)
		}
		for i := range list.Items {
			one := &list.Items[i]
			known := slices.ContainsFunc(found, func(r *appsv1.ControllerRevision) bool { return r.UID == one.UID })
			if !known && metav1.IsControlledBy(one, set) && revision.Genuine(one, set.Name) {
				found = append(found, one)
			}
		}
	}
	slices.SortFunc(found, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name, b.Name))
	})
	return found, nil
}

// NoSuchRevision returns the error that no revision has a number, with the numbers that exist.
func NoSuchRevision(set string, revisions []*appsv1.ControllerRevision, number int64) error {
	var numbers []string
	for _, r := range revisions {
		numbers = append(numbers, strconv.FormatInt(r.Revision, 10))
	}
	return fmt.Errorf("leaderworkerset %q has no revision %d; there are: %s", set, number, strings.Join(numbers, ", "))
}
