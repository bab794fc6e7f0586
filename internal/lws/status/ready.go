package status

import (
	"cmp"
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
		return forTools(c) > 1 && !condition.IsTrue(wanted, c.Type)
	})
}

// Sort puts the conditions for tools last: their order then does not depend on which status an operator
// wrote first.
func Sort(conditions []metav1.Condition) {
	slices.SortStableFunc(conditions, func(a, b metav1.Condition) int { return cmp.Compare(forTools(a), forTools(b)) })
}

// forTools is zero for a condition that people read.
func forTools(c metav1.Condition) int {
	return 1 + slices.Index([]lwsv1.LeaderWorkerSetConditionType{
		lwsv1.LeaderWorkerSetReady, lwsv1.LeaderWorkerSetReconciling, lwsv1.LeaderWorkerSetStalled,
	}, lwsv1.LeaderWorkerSetConditionType(c.Type))
}
