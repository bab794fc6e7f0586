package lws_test

import (
	"math"
	"runtime"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

// Its places were counted one by one, in as many GB as the number has.
func TestAStatefulSetThatSomebodyScaledBeyondMeasureIsScaledBack(t *testing.T) {
	for name, claims := range map[string]func(*lwsv1.LeaderWorkerSet){
		"without claims": func(*lwsv1.LeaderWorkerSet) {}, "with claims that end with a scaling down": fakeapi.Volumes(retainClaims, deleteClaims),
	} {
		c := running(t, 2, 2, claims)
		fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { sts.Spec.Replicas = fakeapi.Ptr[int32](math.MaxInt32) })
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		plan := c.decideSet()
		runtime.ReadMemStats(&after)
		apply, _ := one[action.Apply](t, plan).Object.(*appsv1.StatefulSet)
		if got := workload.PodsOf(apply); got != 2 {
			t.Errorf("%s: scaled to %d", name, got)
		}
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 64 {
			t.Errorf("%s: %d MiB were used to think of it", name, used)
		}
	}
}

// Who scales the workers of a group by hand has them back as its template says.
func TestWorkersThatSomebodyScaledAreScaledBack(t *testing.T) {
	for _, replicas := range []int32{0, 1, 3} {
		c := running(t, 1, 3)
		fakeapi.Edit(c.Server, "w-0", func(sts *appsv1.StatefulSet) { sts.Spec.Replicas = &replicas })
		plan := c.decideGroup("w-0")
		if got := spelled(plan); len(got) != 1 || got[0] != "apply statefulset w-0" {
			t.Fatalf("scaled to %d: %v", replicas, got)
		}
		c.do(plan)
		c.recreated("w-0")
		if sts := find[*appsv1.StatefulSet](c, "w-0"); workload.PodsOf(sts) != 2 || sts.Status.AvailableReplicas != 2 {
			t.Errorf("%d of %d workers", sts.Status.AvailableReplicas, workload.PodsOf(sts))
		}
	}
}

// A size from before it was bounded is one to keep to all the same: it was put right with
// every look.
func TestWorkersOfAGroupBeyondMeasureAreLeftAsManyAsTheyAre(t *testing.T) {
	c := running(t, 1, 3)
	fakeapi.Edit(c.Server, "w-0", func(sts *appsv1.StatefulSet) {
		sts.Spec.Replicas = fakeapi.Ptr[int32](math.MaxInt32 - 1)
		sts.Spec.Template.Annotations[lwsv1.SizeAnnotationKey] = strconv.Itoa(math.MaxInt32)
	})
	if got := spelled(c.decideGroup("w-0")); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}
