package admission

import (
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
)

// InGang reports whether a new pod is placed with its group. set and leader are nil where there
// is none; otherwise holds for sets that do not say.
//
// A gang is whole or it is none: a worker goes where its leader went, whatever the set says
// since. A worker whose template ties it was created for a leader that is tied.
func InGang(pod, leader *corev1.Pod, set *lwsv1.LeaderWorkerSet, otherwise bool) bool {
	switch {
	case gang.IsTied(pod):
		return true
	case !isLeader(pod) && leader != nil && gang.NameOf(pod) == gang.NameOf(leader):
		return gang.IsTied(leader)
	case set == nil:
		return otherwise
	}
	return gang.IsWanted(set, otherwise)
}

// IsLeader reports whether a new pod is to lead its group.
func IsLeader(pod *corev1.Pod) bool { return isLeader(pod) }
