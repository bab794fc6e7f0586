package table

import (
	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/rollout"
)

// Row says what a rule of the set may ask of one group. Of makes one for each group, once: counts, conditions, places
// of a rollout and metrics are folds over rows.
type Row struct {
	*lws.Group
	// Size is how many pods the group has, or is to have.
	Size int32
	// isWanted is set unless the group is above what the set asks for, and isCurrent unless the partition keeps its revision.
	isWanted, isCurrent bool
	// isComplete is set if the leader exists, and the worker StatefulSet where the size asks for one.
	isComplete bool
	// IsReady is set if every pod is ready, and the group is neither to be recreated nor stopped.
	IsReady bool
	// isOutdated is set if the leader is of another revision or placement than its StatefulSet or Deployment.
	isOutdated bool
	// isAtTarget is set if all parts are at the target. isUpdated is not while a template waits, or leaders are displaced.
	isAtTarget, isUpdated bool
	// IsStopped is set if the group exhausted maxGroupRestarts.
	IsStopped bool
	// HasStarted is set if the status has the record of the leader.
	HasStarted bool
	// Decision is the one to recreate the group, or nil.
	Decision *restart.Decision
	// Place is the state of the group in a rollout.
	Place rollout.Place
	// state is the first that applies.
	state lws.GroupState
}

// AllPods returns the leader and its workers as far as the snapshot has them.
func (r *Row) AllPods() []*corev1.Pod { return append([]*corev1.Pod{r.Leader}, r.Pods.Owned...) }
