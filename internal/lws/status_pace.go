package lws

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// statusPace is how long after a write counts and words alone are written again:
// the longer the set has been on its way by then, the longer. What somebody may be
// waiting for is written at once: a condition that turns, a spec that was seen, a
// count that arrives.
func statusPace(conditions []metav1.Condition, written time.Time) time.Duration {
	switch onItsWay := written.Sub(lastTurn(conditions)); {
	case onItsWay < 4*time.Second:
		return 2 * time.Second
	case onItsWay < 12*time.Second:
		return 4 * time.Second
	}
	return 8 * time.Second
}

// lastTurn is when a condition last turned, or zero when there is none.
func lastTurn(conditions []metav1.Condition) time.Time {
	var last time.Time
	for i := range conditions {
		if turned := conditions[i].LastTransitionTime.Time; turned.After(last) {
			last = turned
		}
	}
	return last
}

// arrived tells whether one of the counts has come to the number of groups wanted.
func (d *setDecision) arrived(want *lwsv1.LeaderWorkerSetStatus) bool {
	have, replicas := &d.Set.Status, Replicas(d.Set)
	for _, count := range [][2]int32{
		{have.Replicas, want.Replicas},
		{have.ReadyReplicas, want.ReadyReplicas},
		{have.UpdatedReplicas, want.UpdatedReplicas},
	} {
		if count[0] != replicas && count[1] == replicas {
			return true
		}
	}
	return false
}
