// Package condition merges conditions without flapping.
//
// It knows when a transition time changes. It refuses to know what a condition means and what time it is.
package condition

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Merge returns have with the wanted conditions, all observed at generation. It reports
// whether a condition is new or changed its status or reason; messages do not count. A
// transition time changes only with the status. Merge does not change have.
func Merge(have, want []metav1.Condition, generation int64, now time.Time) (merged []metav1.Condition, turned bool) {
	merged = append([]metav1.Condition(nil), have...)
	for _, w := range want {
		w.LastTransitionTime = metav1.NewTime(now)
		before := meta.FindStatusCondition(merged, w.Type)
		if before == nil {
			merged, turned = append(merged, w), true
			continue
		}
		if before.Status == w.Status {
			w.LastTransitionTime = before.LastTransitionTime
		}
		turned = turned || before.Status != w.Status || before.Reason != w.Reason
		*before = w
	}
	for i := range merged {
		merged[i].ObservedGeneration = generation
	}
	return merged, turned
}

// IsTrue reports whether the condition has the status True.
func IsTrue(have []metav1.Condition, conditionType string) bool {
	return meta.IsStatusConditionTrue(have, conditionType)
}

// Of returns the condition of a type, and reports whether there is one.
func Of(have []metav1.Condition, conditionType string) (metav1.Condition, bool) {
	if found := meta.FindStatusCondition(have, conditionType); found != nil {
		return *found, true
	}
	return metav1.Condition{}, false
}
