// Package condition reads conditions.
//
// It refuses to know what a condition means.
package condition

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
