package lws

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Standing is the progress of a set, counted as its status counts.
type Standing struct {
	// Key is the revision key that groups should be at, or empty while unknown.
	Key string
	// Ready and Updated include groups above replicas.
	Ready, Updated int32
	// Pending is set while the spec asks for a template that is not taken in: the rollout is
	// paused, or the template mounts PVCs that the set does not have. Key is then the former one.
	Pending bool
	// Target is how many wanted groups are to be at the revision: those from the user's partition on. TargetUpdated and
	// TargetReady of them are there, and there and ready.
	Target, TargetUpdated, TargetReady int32
	// Surge is how many groups above those wanted are to go, once the rollout is
	// done. Where the user's partition keeps others back, surge groups stay.
	Surge int32
	// Down is how many wanted groups are down as the rollout counts, and Budget how many may be.
	Down, Budget int32
	// States counts each wanted group once.
	States [GroupStates]int32
	// Led are the groups with a leader.
	Led []LedGroup
	// Effective is the set as groups are made from it. It changes with Key, Pending and the generation of the set.
	Effective *lwsv1.LeaderWorkerSet
	// Allowance is nil for a set whose evictions are not limited.
	Allowance *workload.Allowance
	// Conditions are those of the status as it is to be.
	Conditions []metav1.Condition

	// WantedReady and AtTarget are of the groups below replicas: a surge group does not replace a wanted one. AtTarget counts
	// also while a template waits.
	WantedReady, AtTarget int32
	// Current is how many groups there are between the partition and replicas.
	Current int32
	// Unobserved is set until the Deployment controller has seen what is asked: nothing is done before that.
	Unobserved bool
}

// LedGroup is a group with a leader.
type LedGroup struct {
	Index  int
	Leader types.UID
	// Pods is how many pods the group has.
	Pods int32
	// Created is when the leader was created, and FailedAt when the group failed that it replaces, or zero.
	Created, FailedAt time.Time
	// MayHaveRun is set unless one of the pods has never run. Where the policy is None, the status does not record it.
	IsReady, MayHaveRun bool
}

// IsUnstarted reports whether a pod of the group has never run.
func (g LedGroup) IsUnstarted() bool { return !g.IsReady && !g.MayHaveRun }

// GroupState is the state of a wanted group. A group is in the first state that applies.
type GroupState int

// States of a group, in this order.
const (
	// GroupReady is a group all of whose pods are ready.
	GroupReady GroupState = iota
	// GroupExhausted is a group that exhausted maxGroupRestarts and was stopped.
	GroupExhausted
	// GroupRefused is a group that needs a write that the API server refuses.
	GroupRefused
	// GroupBackingOff is a failed group that is recreated later.
	GroupBackingOff
	// GroupRestarting is a failed group that is being recreated, until it starts.
	GroupRestarting
	// GroupWaiting is a group that needs a name that an object of another owner, or of a previous incarnation, has.
	GroupWaiting
	// GroupUnready is a group that started, and now has a pod that is not ready.
	GroupUnready
	// GroupStarting is any other group.
	GroupStarting

	// GroupStates is the number of states.
	GroupStates
)

// String returns the state as metrics name it.
func (s GroupState) String() string {
	return [...]string{"ready", "exhausted", "refused", "backingOff", "restarting", "waiting", "unready", "starting"}[s]
}
