package integration

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/history"
)

// count counts what happened in a round.
func (r *round) count(versions []history.Version) {
	seen := map[string]int{}
	bound := map[types.UID]bool{}
	claims, mounted := map[string]*corev1.PersistentVolumeClaim{}, map[types.UID]map[string]types.UID{}
	slices.SortFunc(versions, func(a, b history.Version) int { return int(a.At) - int(b.At) })
	for _, v := range versions {
		if v.Claim != nil {
			claims[v.Claim.Name] = v.Claim
		}
		if v.Pod != nil {
			for name := range history.MountsOf(v.Pod) {
				if mounted[v.Pod.UID][name] == "" {
					seen[mountedOnes]++
					if claim := claims[name]; claim != nil && claim.DeletionTimestamp != nil {
						seen[mountedLate]++
					}
				}
			}
			if v.Pod.Spec.NodeName != "" && !bound[v.Pod.UID] && r.start != anyhow {
				seen[onRecord]++
				bound[v.Pod.UID] = true
			}
			mounted[v.Pod.UID] = history.MountsOf(v.Pod)
			if v.Gone {
				delete(mounted, v.Pod.UID)
			}
		}
		if v.Claim != nil && !v.Gone && v.Claim.DeletionTimestamp != nil && !slices.Contains(v.Claim.Finalizers, pvc.PodsFinalizer) {
			for pod := range mounted {
				if mounted[pod][v.Claim.Name] == v.Claim.UID {
					seen[savedByB]++
				}
			}
		}
	}
	r.tally.Lock()
	defer r.tally.Unlock()
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		r.tally.seen[what] += seen[what]
	}
}
