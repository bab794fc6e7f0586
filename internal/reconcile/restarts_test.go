package reconcile_test

import (
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/reconcile"
	"lockstep.dev/lockstep/test/fakeapi"
)

func recreating(size int32) *lwsv1.LeaderWorkerSet {
	return fakeapi.Set("w", 1, size, fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart))
}

func (c *cluster) leader() *corev1.Pod { return fakeapi.Find[*corev1.Pod](c.Server, "w-0") }

func isDeleted(pod *corev1.Pod) bool { return pod == nil || pod.DeletionTimestamp != nil }

// Two operators may delete one leader; users hear of one restart.
func TestADeleteOfWhatIsGoneIsNotReported(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 1))
	gone := action.Delete{
		Object: fakeapi.Former(identity.KindPod, "w-0"),
		Tell:   action.Telling{Done: []action.Event{{Reason: "RecreateGroup", Action: "Delete", Note: "gone"}}},
	}
	set := fakeapi.Find[*lwsv1.LeaderWorkerSet](c.Server, "w")
	if _, err := c.loop.CarryOut(t.Context(), reconcile.Request{Object: set}, lws.Plan{Actions: []action.Action{gone}}); err != nil {
		t.Fatal(err)
	}
	if len(c.events.Events) != 0 {
		t.Errorf("reported %q", <-c.events.Events)
	}
}

// A cache may be seconds late to show a deletion. The leader is not deleted again until it does.
func TestALeaderIsDeletedOnceHoweverLateTheCacheIs(t *testing.T) {
	c := newCluster(t, 0, recreating(1))
	c.run(20, "w-0")
	c.crash()
	c.reconcile("w-0")
	if !isDeleted(c.leader()) {
		t.Fatal("the leader was not deleted")
	}
	late := func(pod *corev1.Pod) { pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil }
	fakeapi.Edit(c.Server, "w-0", late)
	if result, err := c.reconcileGroup("w-0"); err != nil || result.RequeueAfter != 0 || isDeleted(c.leader()) {
		t.Errorf("deleted again, or read again after %v: %v", result.RequeueAfter, err)
	}
	c.wait(time.Hour) // not the cache, but the API server shows an older state
	c.reconcile("w-0")
	if !isDeleted(c.leader()) {
		t.Error("the leader that exists again was not deleted")
	}
}

// Workers that lost their StatefulSet and their owner are deleted before their leader: the next
// leader's StatefulSet would adopt them. A worker that must not be deleted keeps the leader.
func TestALeaderStaysUntilTheWorkersWithoutOwnerAreDeleted(t *testing.T) {
	c := newCluster(t, 0, recreating(3))
	c.run(20, "w-0")
	leader := c.leader().UID
	fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-0")
	for _, worker := range []string{"w-0-1", "w-0-2"} {
		fakeapi.Edit(c.Server, worker, func(pod *corev1.Pod) { pod.OwnerReferences = nil })
	}
	c.refuse("delete", identity.KindPod, "w-0-1", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "w-0-1", errors.New("a policy denied the request")))
	for range 3 {
		_, _ = c.reconcileGroup("w-0") // reports the refusal
	}
	if now := c.leader(); isDeleted(now) || now.UID != leader {
		t.Error("the leader is deleted before a worker")
	}
	if !isDeleted(fakeapi.Find[*corev1.Pod](c.Server, "w-0-2")) {
		t.Error("a worker waits for another one")
	}
	c.Refuse = nil
	c.run(20, "w-0")
	if now := c.leader(); now == nil || now.UID == leader {
		t.Error("once nothing is refused, the group is not recreated")
	}
}

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
