package status

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
)

// Ready returns the conditions of a set that is ready.
func Ready(reason, message string) []metav1.Condition {
	return []metav1.Condition{Holding(lwsv1.LeaderWorkerSetReady, reason, message)}
}

// Unready returns the conditions of a set that is not ready. kind says whether it is Reconciling or
// Stalled.
func Unready(kind lwsv1.LeaderWorkerSetConditionType, reason, message string) []metav1.Condition {
	return []metav1.Condition{Ceased(Holding(lwsv1.LeaderWorkerSetReady, reason, message)), Holding(kind, reason, message)}
}

// Kept returns the conditions without Reconciling and Stalled, unless they are wanted: tools go by
// their presence.
func Kept(have, wanted []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(have), func(c metav1.Condition) bool {
		abnormal := c.Type == string(lwsv1.LeaderWorkerSetReconciling) || c.Type == string(lwsv1.LeaderWorkerSetStalled)
		return abnormal && !condition.IsTrue(wanted, c.Type)
	})
}
