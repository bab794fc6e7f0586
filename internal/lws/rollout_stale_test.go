package lws_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/fakeapi"
)

// Nobody finds a leader by labels that somebody took from it: what relied on it was
// refused again and again.
func TestALeaderWithoutLabelsIsNotLookedForByThem(t *testing.T) {
	for _, name := range []string{"w-0", "w-1"} {
		c := running(t, 2, 1)
		fakeapi.Edit(c.Server, name, func(pod *corev1.Pod) { delete(pod.Labels, lwsv1.WorkerIndexLabelKey) })
		image(c, "image:2")
		for range 4 {
			c.do(c.decideSet())
			c.Sync(find[*appsv1.StatefulSet](c, "w"))
			c.pass(time.Minute)
		}
	}
}

// A name that somebody else bears is not free, and never was: what relied on its
// being free was refused again and again.
func TestARolloutGoesOnBesideASquatter(t *testing.T) {
	c := running(t, 2, 1)
	fakeapi.Edit(c.Server, "w-1", func(pod *corev1.Pod) { strange(c, pod) })
	image(c, "image:2")
	for range 4 {
		c.do(c.decideSet())
		c.Sync(find[*appsv1.StatefulSet](c, "w"))
		c.pass(time.Minute)
	}
	if got := partition(find[*appsv1.StatefulSet](c, "w")); got != 1 {
		t.Errorf("partition %d, want 1: the other group is all there is", got)
	}
}

// A second template came while the StatefulSet controller took group 2 for the
// first. The pods' watch lags: group 2 is seen as it was, and group 3 would go too.
func TestALeaderThatTheLastTemplateTookIsNotReliedOn(t *testing.T) {
	c := running(t, 4, 1)
	sts := func() *appsv1.StatefulSet { return find[*appsv1.StatefulSet](c, "w") }
	up := func() {
		for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
			c.Run(pod)
		}
	}
	image(c, "image:2")
	for want := int32(4); want >= 3; want-- {
		c.do(c.decideSet())
		if got := partition(sts()); got != want {
			t.Fatalf("partition %d, want %d", got, want)
		}
		for range 3 {
			c.Sync(sts())
			up()
		}
		c.Sync(sts())
		c.pass(time.Minute)
	}
	c.do(c.decideSet()) // gives up group 2
	lagging := c.Lagging()
	c.cached = lagging
	c.awake()
	c.Sync(sts()) // takes it
	image(c, "image:3")
	deliver := func() {
		for _, kind := range kinds {
			if kind != identity.KindPod {
				lagging.Deliver(kind)
			}
		}
	}
	deliver()
	c.do(c.decideSet())
	c.Sync(sts())
	deliver()
	plan := c.decideSet()
	apply := one[action.Apply](t, plan)
	if wanted, _ := apply.Object.(*appsv1.StatefulSet); partition(wanted) != 3 {
		t.Fatalf("invalid run: partition %d, want 3", partition(wanted))
	}
	if err := c.Do(apply); err == nil {
		t.Error("group 3 is given up while group 2 is down")
	}
}
