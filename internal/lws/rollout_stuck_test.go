package lws_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws/lwstest"
)

// What was relied on were workers that cannot leave, and nobody on his way out is
// ever found: the partition was never lowered.
func TestAGroupWhoseWorkersCannotLeaveIsGivenUp(t *testing.T) {
	c := running(t, 1, 2)
	lwstest.Terminate[*appsv1.StatefulSet](c.FakeStore, "w-0", "example.com/stuck")
	image(c, "image:2")
	c.do(c.decideSet())
	c.Sync(find[*appsv1.StatefulSet](c, "w"))
	c.pass(time.Minute)
	apply := one[action.Apply](t, c.decideSet())
	if len(apply.Relies) == 0 {
		t.Fatalf("invalid run: nothing is given up by %+v", apply)
	}
	if err := c.Do(apply); err != nil {
		t.Errorf("the write that gives the group up is refused for ever: %v", err)
	}
}
