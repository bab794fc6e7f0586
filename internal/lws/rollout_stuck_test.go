package lws_test

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/test/fakeapi"
)

// What was relied on were workers that cannot leave, and nobody on his way out is
// ever found: the partition was never lowered.
func TestAGroupWhoseWorkersCannotLeaveIsGivenUp(t *testing.T) {
	c := running(t, 1, 2)
	fakeapi.Terminate[*appsv1.StatefulSet](c.Server, "w-0", "example.com/stuck")
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

// A group whose leader is up and whose workers are not was spared as if it served,
// and a rollout out of broken workers stood still.
func TestAGroupThatIsDownIsReplacedWhateverItsLeader(t *testing.T) {
	c := newCluster(t)
	c.WithoutMaxUnavailable = true
	c.pass(time.Minute)
	fakeapi.Add(c.Server, fakeapi.Set("w", 4, 2, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromInt32(2)}
	}))
	c.settle("w-0", "w-1", "w-2", "w-3")
	image(c, "image:2")
	for range 3 {
		plan := c.decideSet()
		plan.Actions = slices.DeleteFunc(plan.Actions, func(a action.Action) bool { return a.Verb() == "delete" })
		c.do(plan)
		fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) {
			sts.Status.ObservedGeneration, sts.Status.UpdateRevision = sts.Generation, "next"
		})
	}
	for _, down := range []string{"w-0", "w-1", "w-3"} { // beyond the budget, of groups granted one
		fakeapi.Edit(c.Server, down, func(sts *appsv1.StatefulSet) { sts.Status.AvailableReplicas = 0 })
	}
	plan := c.decideSet()
	replaced := of[action.Delete](plan)
	if len(replaced) != 1 || replaced[0].Object.Name != "w-3" {
		t.Fatalf("got %v", spelled(plan))
	}
	fakeapi.Edit(c.Server, "w-3", func(sts *appsv1.StatefulSet) { sts.Status.AvailableReplicas = 1 })
	if err := c.Do(replaced[0]); err == nil {
		t.Error("the group was up again, and was taken beyond the budget")
	}
}
