package condition_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/test/expect"
)

func TestOf(t *testing.T) {
	have := []metav1.Condition{{Type: "A", Status: metav1.ConditionFalse, Reason: "R"}}
	found, ok := condition.Of(have, "A")
	expect.That(t, ok && found == have[0] && !condition.IsTrue(have, "A"), "A: got %v, %t", found, ok)
	if found, ok := condition.Of(have, "B"); ok || found != (metav1.Condition{}) {
		t.Errorf("B: got %v, %t", found, ok)
	}
}
