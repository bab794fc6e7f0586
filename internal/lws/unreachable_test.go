package lws_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/fakeapi"
)

// TestLeadersPastAClaimThatLingersKeepTheirClaims: the StatefulSet controller does not get
// past a claim on its way out. The leaders behind it are made, and of their claims only
// those that are missing: to ask for one that is there may exceed a quota.
func TestLeadersPastAClaimThatLingersKeepTheirClaims(t *testing.T) {
	c := running(t, 4, 1, fakeapi.Volumes("Retain", "Retain"))
	c.settleAll()
	fakeapi.Terminate[*corev1.PersistentVolumeClaim](c.Server, "data-w-0", "example.com/held")
	fakeapi.Drop[*corev1.PersistentVolumeClaim](c.Server, "data-w-3")
	for i := range 4 {
		c.Remove(find[*corev1.Pod](c, identity.LeaderName("w", i)), metav1.DeletePropagationBackground)
	}
	made := c.Created[identity.KindPersistentVolumeClaim]
	for range 5 {
		c.collect()
		c.do(c.decideSet()) // a create of what is there would fail
		c.turn(groupNames...)
		c.pass(10 * time.Second)
	}
	if fakeapi.Find[*corev1.Pod](c.Server, "w-0") != nil {
		t.Fatal("invalid run: nothing is in the way")
	}
	for i := 1; i < 4; i++ {
		find[*corev1.Pod](c, identity.LeaderName("w", i))
	}
	if got := c.Created[identity.KindPersistentVolumeClaim] - made; got != 1 {
		t.Errorf("%d claims were made, and one is missing", got)
	}
}

// TestClaimsAreListedOnlyForLeadersThatAreMissed: a claim may linger for days, and each
// look asked the API server for all claims of the set, though every leader that can be
// made was there.
func TestClaimsAreListedOnlyForLeadersThatAreMissed(t *testing.T) {
	c := running(t, 4, 1, fakeapi.Volumes("Retain", "Retain"))
	c.settleAll()
	fakeapi.Terminate[*corev1.PersistentVolumeClaim](c.Server, "data-w-0", "example.com/held")
	c.Remove(find[*corev1.Pod](c, "w-0"), metav1.DeletePropagationBackground)
	for range 5 {
		c.do(c.decideSet())
		c.turn(groupNames...)
	}
	if w := c.set("w"); len(w.LeaderVolumes.Previous) != 1 {
		t.Fatalf("invalid run: %d claims are in the way", len(w.LeaderVolumes.Previous))
	} else if w.Claims != nil {
		t.Errorf("nobody is missed, and claims were read: %v", w.Claims)
	}
	fakeapi.Drop[*corev1.Pod](c.Server, "w-3")
	if w := c.set("w"); len(w.Claims) == 0 {
		t.Error("a leader is to be made, and it is not known which of its claims are there")
	}
}
