package lws

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// progressTurned tells whether a condition that says how far a set has come came,
// went or changed its reason. Other conditions have events of their own; progress
// is not told again because one of them turned.
func progressTurned(before, after []metav1.Condition) bool {
	for _, kind := range []lwsv1.LeaderWorkerSetConditionType{
		lwsv1.LeaderWorkerSetAvailable, lwsv1.LeaderWorkerSetProgressing, lwsv1.LeaderWorkerSetUpdateInProgress,
	} {
		was, _ := conditionOf(before, string(kind))
		is, _ := conditionOf(after, string(kind))
		if was.Status != is.Status || was.Reason != is.Reason {
			return true
		}
	}
	return false
}
