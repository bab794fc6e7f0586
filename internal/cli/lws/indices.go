package lws

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// indices returns, in rising order, the indices of groups whose names objects have, of any incarnation.
func indices(ctx context.Context, cached client.Reader, w lws.SetSnapshot) ([]int, error) {
	found := map[int]bool{}
	note := func(name string) {
		group, ordinal := identity.ParentAndOrdinal(name)
		if identity.LeaderName(w.Set.Name, ordinal) == name {
			found[ordinal] = true
		} else if _, index := identity.ParentAndOrdinal(group); identity.WorkerName(w.Set.Name, index, ordinal) == name {
			found[index] = true
		}
	}
	for _, list := range []client.ObjectList{&corev1.PodList{}, &appsv1.StatefulSetList{}, &corev1.ServiceList{}} {
		err := cached.List(ctx, list, client.InNamespace(w.Set.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: w.Set.Name})
		if err != nil {
			return nil, fmt.Errorf("list the objects of set %q: %w", w.Set.Name, err)
		}
		err = meta.EachListItem(list, func(object runtime.Object) error {
			note(object.(client.Object).GetName())
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, pod := range slices.Concat(w.Leaders.Owned, w.Leaders.Previous, w.Leaders.Orphans, w.Leaders.Foreign) {
		note(pod.Name)
	}
	return slices.Sorted(maps.Keys(found)), nil
}
