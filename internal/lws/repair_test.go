package lws_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/fakeapi"
)

// Workers whose StatefulSet lost its ownerReference are adopted. Their group did not fail.
func TestWorkersThatLostTheirOwnerAreAdoptedAndDidNotFail(t *testing.T) {
	c := running(t, 1, 3, onRestart)
	fakeapi.Edit(c.Server, "w-0", func(sts *appsv1.StatefulSet) { sts.OwnerReferences = nil })
	plan := c.decideGroup("w-0")
	if got := spelled(plan); len(got) != 1 || got[0] != "apply statefulset w-0" {
		t.Fatalf("%v", got)
	}
	c.do(plan)
	if again := c.recreated("w-0"); len(again) != 0 {
		t.Errorf("recreated: %v", again)
	}
}

// A rollout goes by how many groups were wanted when its StatefulSet was last written.
func TestWhoChangesTheNumberOfGroupsThatWereWantedHasItPutBack(t *testing.T) {
	c := running(t, 3, 2)
	fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { sts.Annotations[lwsv1.ReplicasAnnotationKey] = "99" })
	if got := spelled(c.decideSet()); strings.Join(got, ", ") != "apply statefulset w" {
		t.Fatalf("%v", got)
	}
	c.settleAll()
	if got := find[*appsv1.StatefulSet](c, "w").Annotations[lwsv1.ReplicasAnnotationKey]; got != "3" {
		t.Errorf("%q", got)
	}
}
