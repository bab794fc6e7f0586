package condition_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/condition"
)

func TestOf(t *testing.T) {
	have := []metav1.Condition{{Type: "A", Status: metav1.ConditionFalse, Reason: "R"}}
	if found, ok := condition.Of(have, "A"); !ok || found != have[0] || condition.IsTrue(have, "A") {
		t.Errorf("A: got %v, %t", found, ok)
	}
	if found, ok := condition.Of(have, "B"); ok || found != (metav1.Condition{}) {
		t.Errorf("B: got %v, %t", found, ok)
	}
}
