package lws_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A surge group that is ready made up for the group that was being replaced: the
// set was available, and the moment after was not.
func TestASurgeGroupDoesNotStandInForOneThatIsMissing(t *testing.T) {
	c := running(t, 3, 2)
	fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { sts.Spec.Replicas = fakeapi.Ptr[int32](4) })
	c.Sync(find[*appsv1.StatefulSet](c, "w"))
	c.do(c.decideGroup("w-3"))
	for range 3 {
		for _, sts := range fakeapi.All[*appsv1.StatefulSet](c.Objects) {
			c.Sync(sts)
		}
		for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
			c.Run(pod)
		}
	}
	fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-0")
	c.pass(time.Minute)
	status := one[action.WriteStatus](t, c.decideSet()).Status
	if got := brief(status)[available]; status.ReadyReplicas != 3 || got != wasAvailable {
		t.Errorf("got %q with %d groups ready", got, status.ReadyReplicas)
	}
}
