package controller

import (
	"testing"
	"time"

	"lockstep.dev/lockstep/internal/lws"
)

func TestALargeSetRestsBetweenLooks(t *testing.T) {
	now := time.Unix(1000, 0)
	p := newPace(func() time.Time { return now })
	key := request("w").NamespacedName
	look := func(groups, vacant int) {
		p.looked(key, lws.SetSnapshot{Groups: make([]lws.Group, groups), Vacant: make([]lws.Group, vacant)})
	}
	for _, tt := range []struct {
		name           string
		groups, vacant int
		passed, least  time.Duration
		want           time.Duration
	}{
		{"a small set", 10, 0, 0, 0, 5 * time.Millisecond},
		{"events are gathered anyway", 10, 0, 0, gather, gather},
		{"groups that are to come count", 300, 200, 0, gather, 250 * time.Millisecond},
		{"it has rested", 500, 0, 250 * time.Millisecond, 0, 0},
		{"it has rested long ago", 500, 0, time.Hour, gather, gather},
		{"the largest", 100_000, 0, 0, 0, time.Second},
	} {
		look(tt.groups, tt.vacant)
		now = now.Add(tt.passed)
		if got := p.in(key, tt.least); got != tt.want {
			t.Errorf("%s: in %v, want %v", tt.name, got, tt.want)
		}
	}
	look(500, 0)
	if got := p.in(request("other").NamespacedName, 0); got != 0 {
		t.Errorf("another set waits %v", got)
	}
	p.forget(key)
	if got := p.in(key, 0); got != 0 {
		t.Errorf("a set that is not there waits %v", got)
	}
}
