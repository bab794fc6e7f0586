package observe_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"lockstep.dev/lockstep/internal/lws/lwstest"
)

// A large set that took more than ten seconds to come was probed with every look at
// every one of its groups: ten requests for each group, most of the operator's own.
func TestAStatefulSetThatIsStillMakingPodsIsNotProbed(t *testing.T) {
	e, _, _ := chained(t)
	lwstest.Edit(e.FakeStore, "w", func(sts *appsv1.StatefulSet) {
		sts.Generation++
		sts.Spec.Replicas, sts.Status.Replicas = lwstest.Ptr[int32](100), 0
	})
	for range 5 { // its controller has not got to it
		e.Now = e.Now.Add(time.Minute)
		e.set("w")
	}
	for pods := range int32(20) {
		lwstest.Edit(e.FakeStore, "w", func(sts *appsv1.StatefulSet) {
			sts.Status.ObservedGeneration, sts.Status.Replicas = sts.Generation, pods
		})
		e.Now = e.Now.Add(10*time.Second - 1)
		e.set("w")
	}
	if e.live.Reads != 0 {
		t.Errorf("%d live reads", e.live.Reads)
	}
}
