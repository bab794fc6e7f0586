package render

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNodesAreShortened(t *testing.T) {
	tests := []struct {
		names []string
		want  string
	}{
		{nil, "-"},
		{[]string{"node-1"}, "node-1"},
		{[]string{"ip-10-0-1-2.eu-west-1.compute.internal"}, "ip-10-0-1-2"},
		{[]string{"10.0.1.2"}, "10.0.1.2"},
		{[]string{"a", "b", "c", "d", "e"}, "a,b,c +2"},
	}
	for _, tt := range tests {
		if got := nodes(tt.names); got != tt.want {
			t.Errorf("nodes(%q) = %q, want %q", tt.names, got, tt.want)
		}
	}
}

func TestAges(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		ago  time.Duration
		want string
	}{{0, "0s"}, {-time.Minute, "0s"}, {90 * time.Second, "90s"}, {5 * time.Minute, "5m"}, {49 * time.Hour, "2d1h"}}
	for _, tt := range tests {
		at := metav1.NewTime(now.Add(-tt.ago))
		if got := age(&at, now); got != tt.want {
			t.Errorf("%s ago: got %q, want %q", tt.ago, got, tt.want)
		}
	}
	if got := age(nil, now); got != "-" {
		t.Errorf("never: got %q", got)
	}
}
