package lws_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// missing is what a set in step would do if its gang scheduler were not there.
func missing(c *cluster, why string) lws.Plan {
	world := c.set("w")
	world.GangMissing = why
	return lws.DecideSet(world)
}

// A missing gang scheduler is reported once, and its arrival is.
func TestAMissingGangSchedulerIsReportedOnce(t *testing.T) {
	c := gangs(t, 1, 2)
	for _, tt := range []struct {
		decide            func() lws.Plan
		condition, reason string
	}{
		{func() lws.Plan { return missing(c, "volcano is not there") }, "True GangSchedulerMissing", "GangSchedulerMissing/Wait"},
		{c.decideSet, "False GangSchedulerFound", "GangSchedulerFound/Wait"},
	} {
		plan := tt.decide()
		write := one[action.WriteStatus](t, plan)
		want := map[string]string{available: isAvailable, progressing: wasProgressing, "GangSchedulerMissing": tt.condition}
		if diff := cmp.Diff(want, brief(write.Status)); diff != "" {
			t.Errorf("conditions (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff([]string{tt.reason}, notes(write)); diff != "" {
			t.Errorf("events (-want +got)\n%s", diff)
		}
		c.do(plan)
		if again := tt.decide(); len(again.Actions) > 0 {
			t.Errorf("reported again: %s", spelled(again))
		}
	}
	again := missing(c, "volcano is not there")
	if _, waits := waitFor(again, lws.CodeGangSchedulerMissing); !waits || again.Next(c.Now) != 10*time.Second {
		t.Errorf("no requeue: %+v", again.Waits)
	}
}

func TestWithoutItsGangSchedulerAGroupStillGetsItsWorkers(t *testing.T) {
	c := gangs(t, 1, 2)
	fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-0")
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0-1")
	delete(c.Objects, fakeapi.NameOf(podGroup(c)))
	world := c.group("w-0")
	world.GangMissing = "volcano is not there"
	plan := lws.DecideGroup(world)
	if got := one[action.Create](t, plan); got.Target().Name != "w-0" {
		t.Errorf("got %s", spelled(plan))
	}
	if _, told := waitFor(plan, lws.CodeGangSchedulerMissing); !told {
		t.Error("nobody is told")
	}
}

func TestWorkersFollowTheirLeaderNotTheSet(t *testing.T) {
	c := running(t, 1, 2)
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { fakeapi.Annotation(lwsv1.GangSchedulerAnnotationKey, "volcano")(set) })
	fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-0")
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0-1")
	made := one[action.Create](t, c.decideGroup("w-0"))
	sts, ok := made.Object.(*appsv1.StatefulSet)
	if !ok || sts.Spec.Template.Annotations[gang.PodGroupAnnotationKey] != "" {
		t.Errorf("the worker of a leader that is alone is tied: %+v", sts.Spec.Template.Annotations)
	}
}
