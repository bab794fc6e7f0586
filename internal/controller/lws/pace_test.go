package lws

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A set is read rarely while it is large, and four times as rarely until half of its groups are
// complete.
func TestTheLargerASetTheLongerItsPause(t *testing.T) {
	key, other := types.NamespacedName{Namespace: "default", Name: "w"}, types.NamespacedName{Namespace: "default", Name: "other"}
	for _, tt := range []struct {
		name           string
		groups, vacant int
		size           int32
		complete       int
		passed, least  time.Duration
		want           time.Duration
	}{
		{"a small set", 10, 0, 1, 0, 0, 0, 5 * time.Millisecond},
		{"events are gathered anyway", 10, 0, 1, 0, 0, gather, gather},
		{"vacant groups count", 300, 200, 1, 0, 0, gather, 250 * time.Millisecond},
		{"the pause is over", 500, 0, 1, 0, 250 * time.Millisecond, 0, 0},
		{"the pause is long over", 500, 0, 1, 0, time.Hour, gather, gather},
		{"the largest", 100_000, 0, 1, 0, 0, 0, time.Second},
		{"no group is complete", 100, 0, 2, 0, 0, 0, 200 * time.Millisecond},
		{"few groups are complete", 100, 0, 2, 49, 0, 0, 200 * time.Millisecond},
		{"half of the groups are complete", 100, 0, 2, 50, 0, 0, 50 * time.Millisecond},
		{"all groups are complete", 100, 0, 2, 100, 0, 0, 50 * time.Millisecond},
		{"groups of one have no StatefulSet", 100, 0, 1, 0, 0, 0, 50 * time.Millisecond},
	} {
		now := time.Unix(1000, 0)
		p := newPace(func() time.Time { return now })
		w := lws.SetSnapshot{Set: fakeapi.Set("w", int32(tt.groups), tt.size), Groups: make([]lws.Group, tt.groups), Vacant: make([]lws.Group, tt.vacant)}
		for i := range tt.complete {
			w.Groups[i].Workers.Owned = []*appsv1.StatefulSet{{Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1))}, Status: appsv1.StatefulSetStatus{Replicas: 1}}}
		}
		p.read(key, w)
		now = now.Add(tt.passed)
		if got := p.in(key, tt.least); got != tt.want {
			t.Errorf("%s: in %v, want %v", tt.name, got, tt.want)
		}
		if got := p.in(other, 0); got != 0 {
			t.Errorf("another set waits %v", got)
		}
		p.read(key, lws.SetSnapshot{})
		if got := p.in(key, 0); got != 0 {
			t.Errorf("a set that does not exist waits %v", got)
		}
	}
}
