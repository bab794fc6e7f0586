package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lwscache"
)

// groupOfVolume is the group of whose workers one has the claim. The claims of
// leaders are no group's business.
func groupOfVolume(_ context.Context, object client.Object) []types.NamespacedName {
	group := object.GetLabels()[lwsv1.GroupIndexLabelKey]
	if group == "" {
		return nil
	}
	leader := labelledSet(object)
	leader.Name += "-" + group
	return []types.NamespacedName{leader}
}

// setOfVolume is the set that waits for that very claim to leave.
func setOfVolume(memory *lwscache.Memory) keysOf {
	return func(_ context.Context, object client.Object) []types.NamespacedName {
		set := labelledSet(object)
		if !memory.Watches(set, object.GetUID()) {
			return nil
		}
		return []types.NamespacedName{set}
	}
}
