package reconcile_test

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A process that never saw the set ends its group, tries again what is refused, and then leaves the
// rest to the garbage collector.
func TestAGroupEndsWithoutItsSet(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 3, fakeapi.Parallel))
	c.run(10, "w-0")
	fakeapi.Drop[*lwsv1.LeaderWorkerSet](c.Server, "w")
	c.restart()
	if _, err := c.reconcileGroup("w-0"); err != nil || fakeapi.Find[*appsv1.StatefulSet](c.Server, "w-0") == nil {
		t.Fatalf("the leader does not terminate: %v", err)
	}
	fakeapi.Terminate[*corev1.Pod](c.Server, "w-0", "example.com/held")
	c.refuse("delete", identity.KindPod, "w-0-2", errors.New("not now"))
	if _, err := c.reconcileGroup("w-0"); err == nil {
		t.Error("the refusal is not tried again")
	}
	if c.Refuse = nil; fakeapi.Find[*appsv1.StatefulSet](c.Server, "w-0") != nil {
		t.Error("the StatefulSet is there")
	}
	for name, ends := range map[string]bool{"w-0-1": true, "w-0-2": false} {
		if pod := fakeapi.Find[*corev1.Pod](c.Server, name); (pod == nil || pod.DeletionTimestamp != nil) != ends {
			t.Errorf("pod %s ends: %t", name, !ends)
		}
	}
	if result, err := c.reconcileGroup("w-0"); err != nil || !result.IsZero() {
		t.Errorf("the rest is the garbage collector's: %v, %v", result, err)
	}
}
