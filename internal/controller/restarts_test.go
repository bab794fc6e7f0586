package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/lwstest"
)

// A group that finds that it failed has its set write that down, and the set has
// the group act on it: neither waits for an event.
func TestAFailureGoesFromTheGroupToItsSetAndBack(t *testing.T) {
	c := newCluster(t, 0, lwstest.Set("w", 1, 1, lwstest.Policy(lwsv1.RecreateGroupOnPodRestart)))
	var looked []string
	c.wakeGroup = func(leader client.Object) { looked = append(looked, leader.GetName()) }
	c.live(20, "w-0")
	woken := c.woken
	lwstest.Edit(c.FakeStore, "w-0", func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "w", RestartCount: 1}}
	})
	if _, err := c.lookAtGroup("w-0"); err != nil || c.woken == woken {
		t.Fatalf("the set was not woken: %v", err)
	}
	if _, err := c.lookAtSet(); err != nil || len(looked) != 1 || looked[0] != "w-0" {
		t.Fatalf("the groups woken are %v: %v", looked, err)
	}
	if _, err := c.lookAtGroup("w-0"); err != nil {
		t.Fatal(err)
	}
	if pod := lwstest.Find[*corev1.Pod](c.FakeStore, "w-0"); pod.DeletionTimestamp == nil {
		t.Error("the leader was not deleted")
	}
	if _, err := c.lookAtSet(); err != nil || len(looked) != 1 {
		t.Errorf("the groups woken are %v: %v", looked, err)
	}
}
