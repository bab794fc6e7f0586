package lws_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/lwstest"
)

// Without its label a leader StatefulSet is not in the cache. Only its metadata was
// read then, and a rollout of one group at a time was let loose on all.
func TestALeaderStatefulSetThatLostItsNameGivesUpNoGroup(t *testing.T) {
	c := running(t, 4, 2)
	image(c, "image:2")
	c.do(c.decideSet())
	lwstest.Edit(c.FakeStore, "w", func(sts *appsv1.StatefulSet) { delete(sts.Labels, lwsv1.SetNameLabelKey) })
	for range 3 {
		for _, a := range c.decideSet().Actions {
			c.try(a)
		}
	}
	sts := find[*appsv1.StatefulSet](c, "w")
	if partition(sts) != 4 || lws.PodsOf(sts) != 4 || !lws.BearsName(sts, "w") {
		t.Errorf("partition %d of %d, labels %v", partition(sts), lws.PodsOf(sts), sts.Labels)
	}
}

// A set that a cache is late to show had a second revision made for it.
func TestARevisionThatTheCacheIsLateToShowIsNotMadeAgain(t *testing.T) {
	c := newCluster(t)
	lwstest.Add(c.FakeStore, lwstest.Set("w", 1, 1))
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
	if pods := lwstest.All[*corev1.Pod](c.Objects); len(pods) != 0 {
		t.Fatalf("invalid run: %d pods", len(pods))
	}
}
