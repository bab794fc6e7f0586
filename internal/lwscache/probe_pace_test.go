package lwscache

import (
	"testing"
	"time"
)

func TestMissingPodsAreProbedEverMoreSeldom(t *testing.T) {
	m, now := NewMemory(time.Time{}), time.Unix(1000, 0)
	var probed []int
	for second := range 140 {
		if m.probeDue("u", 3, now.Add(time.Duration(second)*time.Second)) {
			probed = append(probed, second)
		}
	}
	want := []int{10, 30, 70, 110}
	if len(probed) != len(want) {
		t.Fatalf("probed after %v seconds, want %v", probed, want)
	}
	for i := range want {
		if probed[i] != want[i] {
			t.Fatalf("probed after %v seconds, want %v", probed, want)
		}
	}
}
