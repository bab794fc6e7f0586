package lws_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/test/fakeapi"
)

// A set that a cache is late to show had a second revision made for it.
func TestARevisionThatTheCacheIsLateToShowIsNotMadeAgain(t *testing.T) {
	c := newCluster(t)
	fakeapi.Add(c.Server, fakeapi.Set("w", 1, 1))
	late := c.Lagging()
	c.do(c.decideSet())
	c.cached = late
	c.awake()
	for range 3 {
		for _, a := range c.decideSet().Actions {
			c.try(a)
		}
	}
	if found := revisions(c); len(found) != 1 {
		t.Errorf("%d revisions", len(found))
	}
	if pods := fakeapi.All[*corev1.Pod](c.Objects); len(pods) != 0 {
		t.Fatalf("invalid run: %d pods", len(pods))
	}
}
