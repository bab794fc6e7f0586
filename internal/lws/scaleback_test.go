package lws_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/lwstest"
)

// Who scales the workers of a group by hand has them back as its template says.
func TestWorkersThatSomebodyScaledAreScaledBack(t *testing.T) {
	for _, replicas := range []int32{0, 1, 3} {
		c := running(t, 1, 3)
		lwstest.Edit(c.FakeStore, "w-0", func(sts *appsv1.StatefulSet) { sts.Spec.Replicas = &replicas })
		plan := c.decideGroup("w-0")
		if got := spelled(plan); len(got) != 1 || got[0] != "apply statefulset w-0" {
			t.Fatalf("scaled to %d: %v", replicas, got)
		}
		c.do(plan)
		c.recreated("w-0")
		if sts := find[*appsv1.StatefulSet](c, "w-0"); lws.PodsOf(sts) != 2 || sts.Status.AvailableReplicas != 2 {
			t.Errorf("%d of %d workers", sts.Status.AvailableReplicas, lws.PodsOf(sts))
		}
	}
}
