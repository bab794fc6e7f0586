package lws_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/test/fakeapi"
)

// OnDelete is what holds the rollout of a StatefulSet. That it has no partition was
// read as if all groups had been given up, and the write that repaired it did so.
func TestARolloutThatSomebodyHaltedGoesOnWithinItsBudget(t *testing.T) {
	for what, halt := range map[string]func(*cluster){
		"running": func(*cluster) {}, "paused": func(c *cluster) { pause(c) },
	} {
		t.Run(what, func(t *testing.T) {
			c := running(t, 4, 1)
			image(c, "image:2")
			c.do(c.decideSet())
			c.Sync(find[*appsv1.StatefulSet](c, "w"))
			halt(c)
			fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) {
				sts.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
				sts.Generation++
				sts.Status.ObservedGeneration = sts.Generation
			})
			apply := one[action.Apply](t, c.decideSet())
			strategy := apply.Object.(*appsv1.StatefulSet).Spec.UpdateStrategy
			if strategy.Type != appsv1.RollingUpdateStatefulSetStrategyType || *strategy.RollingUpdate.Partition < 3 {
				t.Errorf("of 4 groups those from %d on are given up, by %s", *strategy.RollingUpdate.Partition, strategy.Type)
			}
			if gone := of[action.Delete](c.decideSet()); len(gone) > 0 {
				t.Errorf("%s is deleted", gone[0].Object)
			}
			edited(c, func(set *lwsv1.LeaderWorkerSet) { delete(set.Annotations, lwsv1.PausedAnnotationKey) })
			c.settleAll()
			if got := runningImages(c); got["image:2"] != 4 {
				t.Errorf("pods run %v", got)
			}
		})
	}
}
