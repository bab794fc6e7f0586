package lws_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/test/lwstest"
)

// A surge group that is ready made up for the group that was being replaced: the
// set was available, and the moment after was not.
func TestASurgeGroupDoesNotStandInForOneThatIsMissing(t *testing.T) {
	c := running(t, 3, 2)
	lwstest.Edit(c.FakeStore, "w", func(sts *appsv1.StatefulSet) { sts.Spec.Replicas = lwstest.Ptr[int32](4) })
	c.Sync(find[*appsv1.StatefulSet](c, "w"))
	c.do(c.decideGroup("w-3"))
	for range 3 {
		for _, sts := range lwstest.All[*appsv1.StatefulSet](c.Objects) {
			c.Sync(sts)
		}
		for _, pod := range lwstest.All[*corev1.Pod](c.Objects) {
			c.Run(pod)
		}
	}
	lwstest.Drop[*appsv1.StatefulSet](c.FakeStore, "w-0")
	c.pass(time.Minute)
	status := one[action.WriteStatus](t, c.decideSet()).Status
	if got := brief(status)[available]; status.ReadyReplicas != 3 || got != wasAvailable {
		t.Errorf("got %q with %d groups ready", got, status.ReadyReplicas)
	}
}
