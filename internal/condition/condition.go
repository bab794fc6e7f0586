// Package condition merges conditions without flapping.
//
// It knows how one condition relates to another and when a transition time may
// move. It refuses to know what a condition is about and what time it is: the
// time is handed in.
package condition

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Merge returns have with each wanted condition in it, all of them observed at
// generation, and tells whether any came, went or changed its reason; words
// alone do not count. A transition time moves only when the status does. have is
// not touched.
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

// IsTrue tells whether have holds the condition as True.
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
