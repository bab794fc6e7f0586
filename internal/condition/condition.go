// Package condition merges conditions without flapping.
//
// It knows how one condition relates to another and when a transition time moves. It
// refuses to know what a condition is about and what time it is: the time is handed in.
package condition

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Merge returns have with each wanted condition in it, all of them observed at generation.
// It reports whether any condition appeared or changed its status or reason; a message
// alone does not count. A transition time moves only with the status. have is not changed.
func Merge(have, want []metav1.Condition, generation int64, now time.Time) (merged []metav1.Condition, turned bool) {
	merged = slices.Clone(have)
	for _, w := range want {
		w.LastTransitionTime = metav1.NewTime(now)
		is := meta.FindStatusCondition(merged, w.Type)
		turned = turned || is == nil || is.Status != w.Status || is.Reason != w.Reason
		meta.SetStatusCondition(&merged, w)
	}
	for i := range merged {
		merged[i].ObservedGeneration = generation
	}
	return merged, turned
}

// IsTrue reports whether have holds the condition as True.
func IsTrue(have []metav1.Condition, conditionType string) bool {
	return meta.IsStatusConditionTrue(have, conditionType)
}
