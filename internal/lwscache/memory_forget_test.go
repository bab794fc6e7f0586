package lwscache

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// A set deleted in the foreground left the vigils over its groups behind, for as
// long as the process lived: no event of a group comes after the set has gone.
func TestForgettingASetForgetsItsGroups(t *testing.T) {
	m := NewMemory(awake)
	for _, name := range []string{"w", "group/w-0", "group/w-1", "group/w-1-1", "group/x-0"} {
		m.watchOver(types.NamespacedName{Namespace: "ns", Name: name}, []presence{ghost("g", false)}, after(1))
	}
	m.forget(set)
	for _, stays := range []string{"group/w-1-1", "group/x-0"} {
		if m.vigils[types.NamespacedName{Namespace: "ns", Name: stays}] == nil {
			t.Errorf("%s was forgotten", stays)
		}
	}
	if len(m.vigils) != 2 {
		t.Errorf("%d vigils are left", len(m.vigils))
	}
}
