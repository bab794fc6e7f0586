package lws

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// groupOfVolume is the group that the PVC of a worker belongs to.
func groupOfVolume(_ context.Context, object client.Object) []types.NamespacedName {
	group := object.GetLabels()[lwsv1.GroupIndexLabelKey]
	if group == "" {
		return nil
	}
	leader := labelledSet(object)
	leader.Name += "-" + group
	return []types.NamespacedName{leader}
}

// setOfVolume is the set that the PVC is labelled with.
func setOfVolume(_ context.Context, object client.Object) []types.NamespacedName {
	return []types.NamespacedName{labelledSet(object)}
}
