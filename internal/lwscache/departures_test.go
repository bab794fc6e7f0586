package lwscache

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestDeparturesAreBoundedAndPass(t *testing.T) {
	awake := time.Unix(0, 0)
	m := NewMemory(awake)
	leave := func(leader string, ordinal int, at time.Time) {
		m.Left(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprintf("%s-%d", leader, ordinal)}}, at)
	}
	left := func(leader string, at time.Time) (names []string) {
		for _, pod := range m.lastOf(types.NamespacedName{Namespace: "n", Name: leader}, at) {
			names = append(names, pod.Name)
		}
		return names
	}
	leave("w-0", 1, awake)
	handed := m.lastOf(types.NamespacedName{Namespace: "n", Name: "w-0"}, awake)
	leave("w-0", 2, awake)
	if diff := cmp.Diff([]string{"w-0-1", "w-0-2"}, left("w-0", awake)); diff != "" || len(handed) != 1 {
		t.Errorf("of a group (-want +got):\n%s%d handed out before", diff, len(handed))
	}
	if got := left("w-0", awake.Add(departedFor+1)); got != nil {
		t.Errorf("long after: %v", got)
	}
	for i := range departuresKept {
		leave("w-0", 3+i, awake)
	}
	if got := left("w-0", awake); len(got) != departuresKept || got[0] != "w-0-3" {
		t.Errorf("of a large group: %v", got)
	}
	for i := range departingKept {
		leave(fmt.Sprintf("v-%d", i), 1, awake.Add(time.Second))
	}
	if len(m.departures) != departingKept || left("w-0", awake) != nil || left("v-0", awake) == nil {
		t.Errorf("of many groups: %d are remembered", len(m.departures))
	}
	leave("u-0", 1, awake.Add(2*departedFor))
	if len(m.departures) != 1 {
		t.Errorf("a minute later: %d are remembered", len(m.departures))
	}
}
