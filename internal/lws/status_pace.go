package lws

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// soonest is how long counts and words alone wait at least.
const soonest = 2 * time.Second

// pace is how long after a write this one may follow it. A group that is told to be
// ready is soon told of what it is made of, too: by that it is judged by whoever runs
// next.
func (d *setDecision) pace(want *lwsv1.LeaderWorkerSetStatus) time.Duration {
	have := d.told
	if recorded := len(have.Started); recorded < len(want.Started) && recorded < int(have.ReadyReplicas) {
		return soonest
	}
	return statusPace(have.Conditions, d.StatusWritten)
}

// statusPace is how long after a write counts and words alone are written again:
// the longer the set has been on its way by then, the longer. What somebody may be
// waiting for is written at once: a condition that turns, a spec that was seen, a
// count that arrives.
func statusPace(conditions []metav1.Condition, written time.Time) time.Duration {
	switch onItsWay := written.Sub(lastTurn(conditions)); {
	case onItsWay < 4*time.Second:
		return soonest
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
	have, replicas := &d.Set.Status, workload.Replicas(d.Set)
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
