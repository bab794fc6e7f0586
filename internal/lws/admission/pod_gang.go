package admission

import (
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
)

// GangFor returns the scheduler that a new pod is handed to with its group, or
// nil. set and leader are nil where there is none; otherwise is for sets that do
// not say.
//
// A gang is whole or it is none: a worker goes where its leader went, whatever
// the set has been told since. One whose template ties it was made for a leader
// that is tied.
func GangFor(pod, leader *corev1.Pod, set *lwsv1.LeaderWorkerSet, otherwise gang.Scheduler) gang.Scheduler {
	if tied := gang.Of(pod); tied != nil {
		return tied
	}
	if !isLeader(pod) && leader != nil && sameGroup(pod, leader) {
		return gang.Of(leader)
	}
	if set == nil {
		return otherwise
	}
	return gang.Wanted(set, otherwise)
}

func sameGroup(pod, leader *corev1.Pod) bool { return gang.NameOf(pod) == gang.NameOf(leader) }

// IsLeader tells whether a new pod is to lead its group.
func IsLeader(pod *corev1.Pod) bool { return isLeader(pod) }
