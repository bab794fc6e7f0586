package leaders

import (
	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/lws/rollout"
	"lockstep.dev/lockstep/internal/lws/table"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// statefulSetMaker answers for Ordinal sets.
type statefulSetMaker struct{ *table.Table }

// deploymentMaker answers for Hash sets: any leader is as good as another.
type deploymentMaker struct {
	*table.Table
	// gated are the leaders that wait for room.
	gated replacements
}

// New returns the maker of a set.
func New(t *table.Table) table.Maker {
	if workload.HasHashIdentity(t.Set) {
		return &deploymentMaker{Table: t}
	}
	return &statefulSetMaker{t}
}

// replacements are the gated leaders of a set of Hash groups.
type replacements struct {
	// room counts the places of the set, and admitted are the leaders that get one.
	room               rollout.Room
	admitted, deferred []*corev1.Pod
}
