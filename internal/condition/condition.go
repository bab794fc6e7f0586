// Package condition merges conditions without flapping.
//
// It knows when a transition time changes. It refuses to know what a condition means and
// what time it is.
package condition

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Merge returns have with the wanted conditions, all observed at generation. It reports
// whether a condition is new or changed its status or reason; messages do not count. A
// transition time changes only with the status. Merge does not change have.
func Merge(have, want []metav1.Condition, generation int64, now time.Time) (merged []metav1.Condition, turned bool) {
	merged = append([]metav1.Condition(nil), have...)
	for _, w := range want {
		w.LastTransitionTime = metav1.NewTime(now)
		i := index(merged, w.Type)
		if i < 0 {
			merged, turned = append(merged, w), true
			continue
		}
		if merged[i].Status == w.Status {
			w.LastTransitionTime = merged[i].LastTransitionTime
		}
		turned = turned || merged[i].Status != w.Status || merged[i].Reason != w.Reason
		merged[i] = w
	}
	for i := range merged {
		merged[i].ObservedGeneration = generation
	}
	return merged, turned
}

// IsTrue reports whether the condition has the status True.
func IsTrue(have []metav1.Condition, conditionType string) bool {
	i := index(have, conditionType)
	return i >= 0 && have[i].Status == metav1.ConditionTrue
}

func index(conditions []metav1.Condition, conditionType string) int {
	for i := range conditions {
		if conditions[i].Type == conditionType {
			return i
		}
	}
	return -1
}
