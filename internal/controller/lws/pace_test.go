package lws

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

func TestALargeSetRestsBetweenLooks(t *testing.T) {
	now := time.Unix(1000, 0)
	p := newPace(func() time.Time { return now })
	key := request("w").NamespacedName
	look := func(groups, vacant int) {
		p.read(key, lws.SetSnapshot{Groups: make([]lws.Group, groups), Vacant: make([]lws.Group, vacant)})
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

// A set of 100 groups is looked at four times as rarely until half of them are complete.
func TestASetThatComesRestsLonger(t *testing.T) {
	now := time.Unix(1000, 0)
	p := newPace(func() time.Time { return now })
	key := request("w").NamespacedName
	for complete, want := range map[int]time.Duration{0: 200 * time.Millisecond, 49: 200 * time.Millisecond, 50: 50 * time.Millisecond, 100: 50 * time.Millisecond} {
		w := lws.SetSnapshot{Set: fakeapi.Set("w", 100, 2), Groups: make([]lws.Group, 100)}
		for i := range w.Groups {
			workers := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1))}}
			if i < complete {
				workers.Status.Replicas = 1
			}
			w.Groups[i].Workers.Owned = []*appsv1.StatefulSet{workers}
		}
		p.read(key, w)
		if got := p.in(key, 0); got != want {
			t.Errorf("%d complete groups: rests %v, want %v", complete, got, want)
		}
	}
	ones := lws.SetSnapshot{Set: fakeapi.Set("w", 100, 1), Groups: make([]lws.Group, 100)}
	if p.read(key, ones); p.in(key, 0) != 50*time.Millisecond {
		t.Error("groups of one have no StatefulSet to come")
	}
}
