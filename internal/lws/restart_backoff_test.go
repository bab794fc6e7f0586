package lws_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/backoff"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/lwstest"
)

// fail has group 0 fail once more, and returns when it is recreated.
func fail(c *cluster) time.Duration {
	c.t.Helper()
	at := c.Now
	lwstest.Edit(c.FakeStore, "w-0-1", crash)
	c.do(c.decideGroup("w-0"))
	c.do(c.decideSet())
	r := c.status().Restarts[0]
	if wait := r.DueAt.Sub(at); wait > 0 {
		c.heldBack(r)
	}
	c.recreated("w-0")
	return r.DueAt.Sub(at)
}

// heldBack checks that a group stays as it is until it is due, and says so.
func (c *cluster) heldBack(r lwsv1.GroupRestarts) {
	c.t.Helper()
	plan := c.decideGroup("w-0")
	w, waits := waitFor(plan, lws.CodeBackoff)
	if !waits || !w.Until.Equal(r.DueAt.Time) || len(plan.Actions) != 0 {
		c.t.Fatalf("not held back: %v %+v", spelled(plan), plan.Waits)
	}
	told := condition(c.status(), lws.ConditionBackoff)
	if told.Status != metav1.ConditionTrue || !strings.Contains(told.Message, "is recreated at "+r.DueAt.UTC().Format(time.RFC3339)) {
		c.t.Fatalf("told %+v", told)
	}
	c.awake()
	c.Now = r.DueAt.Add(-time.Second)
	if plan := c.decideGroup("w-0"); len(plan.Actions) != 0 {
		c.t.Fatalf("before it is due, and after a crash: %v", spelled(plan))
	}
	c.Now = r.DueAt.Time
	if plan := c.decideGroup("w-0"); len(plan.Actions) == 0 {
		c.t.Fatalf("when it is due: nothing")
	}
}

func TestBackoff(t *testing.T) {
	for _, tt := range []struct {
		name  string
		value string
		want  []time.Duration
	}{
		{"as it is", "", []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute}},
		{"off", "off", []time.Duration{0, 0, 0, 0}},
		{"as given", "first=30s,max=1m", []time.Duration{0, 30 * time.Second, time.Minute, time.Minute}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := running(t, 1, 2, onRestart, func(set *lwsv1.LeaderWorkerSet) {
				if tt.value != "" {
					lwstest.Annotation(backoff.AnnotationKey, tt.value)(set)
				}
			})
			var got []time.Duration
			for range tt.want {
				got = append(got, fail(c))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if told := condition(c.status(), lws.ConditionBackoff); told.Status == metav1.ConditionTrue {
				t.Errorf("still told of: %+v", told)
			}
			c.pass(11 * time.Minute)
			if wait := fail(c); wait != 0 {
				t.Errorf("after ten minutes of health it waits %s", wait)
			}
			if kept := len(c.status().Restarts[0].Failures); kept != 3 {
				t.Errorf("%d failures are kept", kept)
			}
		})
	}
}

// What the status tells stays within bounds, however many groups fail.
func TestRestartsAreBounded(t *testing.T) {
	const many = 3000
	set := lwstest.Set("w", many, 1, onRestart)
	set.UID = "set"
	since := metav1.NewTime(lwstest.Epoch)
	set.Status.RestartsSince = &since
	world := lws.SetSnapshot{Now: lwstest.Epoch.Add(time.Hour), Set: set, Findings: map[types.UID]lws.Finding{}}
	for i := range many {
		leader := lwstest.Pod(identity.LeaderName("w", i), "w", 0)
		leader.UID = types.UID(leader.Name + strings.Repeat("x", 30))
		world.Groups = append(world.Groups, lws.Group{Index: i, LeaderName: leader.Name, Leader: leader})
		world.Leaders.Members = append(world.Leaders.Members, leader)
		world.Findings[leader.UID] = lws.Finding{
			Index: i, Leader: identity.RefOf(identity.KindPod, leader),
			Failure: &lws.Failure{Code: lws.CodePodEnded, PodFailure: lwsv1.PodFailure{Pod: leader.Name, Message: strings.Repeat("x", 256)}},
		}
	}
	restarts := of[action.WriteStatus](lws.DecideSet(world))[0].Status.Restarts
	var told int
	for i, r := range restarts {
		told += len(r.Failures)
		if i > 0 && restarts[i-1].Index >= r.Index {
			t.Fatalf("out of order at %d", i)
		}
	}
	if len(restarts) != many || told != 64 {
		t.Errorf("%d groups fail, %d in detail: what is not answered yet must be told", len(restarts), told)
	}
	for i := range world.Groups { // all are recreated, and one fails again
		leader := world.Groups[i].Leader.DeepCopy()
		leader.UID += "y"
		world.Groups[i].Leader, world.Leaders.Members[i] = leader, leader
	}
	set.Status.Restarts = restarts
	one := world.Groups[7].Leader
	world.Findings = map[types.UID]lws.Finding{one.UID: {
		Index: 7, Leader: identity.RefOf(identity.KindPod, one),
		Failure: &lws.Failure{PodFailure: lwsv1.PodFailure{Pod: one.Name}},
	}}
	restarts = of[action.WriteStatus](lws.DecideSet(world))[0].Status.Restarts
	if len(restarts) != 2500 || restarts[7].Count != 2 {
		t.Errorf("%d are kept; %+v", len(restarts), restarts[7])
	}
	set.Spec.Replicas = lwstest.Ptr[int32](5)
	set.Status.Restarts = restarts
	world.Groups, world.Findings = nil, nil
	if restarts = of[action.WriteStatus](lws.DecideSet(world))[0].Status.Restarts; len(restarts) != 5 {
		t.Errorf("%d are kept of 5 groups", len(restarts))
	}
}

// waiting has group 0 fail for the third time in a row, and wait.
func waiting(t *testing.T) (*cluster, lwsv1.GroupRestarts) {
	t.Helper()
	c := running(t, 1, 2, onRestart)
	fail(c)
	fail(c)
	lwstest.Edit(c.FakeStore, "w-0-1", crash)
	c.noted("w-0")
	c.do(c.decideSet())
	r := c.status().Restarts[0]
	if wait := r.DueAt.Sub(c.Now); wait != 20*time.Second {
		t.Fatalf("invalid run: it waits %s", wait)
	}
	return c, r
}

// Who shortens or switches off the back-off of a set does so because a group waits.
// What a broken template did is not held against the one that mends it; the evidence stays.
func TestFailuresAreCountedAnewUnderANewTemplate(t *testing.T) {
	c := running(t, 1, 2, onRestart)
	for range 5 {
		fail(c)
	}
	image(c, "image:2")
	c.settleAll()
	if got := find[*corev1.Pod](c, "w-0").Spec.Containers[0].Image; got != "image:2" {
		t.Fatalf("invalid run: leader runs %s", got)
	}
	if wait := fail(c); wait != 0 {
		t.Errorf("the first restart waits %s", wait)
	}
	if wait := fail(c); wait != 10*time.Second {
		t.Errorf("the second restart waits %s", wait)
	}
	if r := c.status().Restarts[0]; r.Count != 2 || len(r.Failures) < 3 {
		t.Errorf("got %+v", r)
	}
}

func TestAShorterBackoffHoldsForGroupsThatWait(t *testing.T) {
	for value, want := range map[string]time.Duration{"off": 0, "first=2s": 5 * time.Second, "first=1m": 20 * time.Second} {
		c, r := waiting(t)
		lwstest.Edit(c.FakeStore, "w", func(set *lwsv1.LeaderWorkerSet) { lwstest.Annotation(backoff.AnnotationKey, value)(set) })
		c.pass(10 * time.Second)
		c.do(c.decideSet())
		if got := c.status().Restarts[0].DueAt.Sub(r.FailedAt.Time); got != want {
			t.Errorf("%s: it waits %s, want %s", value, got, want)
		}
		if goes := len(c.decideGroup("w-0").Actions) > 0; goes != (want < 10*time.Second) {
			t.Errorf("%s: it is recreated: %t", value, goes)
		}
		if again := spelled(c.decideSet()); len(again) != 0 {
			t.Errorf("%s: then %v", value, again)
		}
	}
}

// A clock that was put back, or that of another node, does not make a group wait for
// longer than its back-off.
func TestAClockThatIsPutBackDelaysNoRestart(t *testing.T) {
	c, _ := waiting(t)
	c.pass(-2 * time.Hour)
	c.awake()
	c.do(c.decideSet())
	r := c.status().Restarts[0]
	if wait := r.DueAt.Sub(c.Now); wait > 21*time.Second || wait < 20*time.Second {
		t.Errorf("it waits %s", wait)
	}
	if again := spelled(c.decideSet()); len(again) != 0 {
		t.Errorf("then %v", again)
	}
	c.pass(21 * time.Second)
	if got := c.recreated("w-0"); len(got) != 1 {
		t.Error("it is not recreated")
	}
}

// Groups that there is no room to record are whole again all the same once they are
// ready, and their failures are forgotten in time.
func TestAGroupThatIsNotRecordedIsWholeOnceItIsReady(t *testing.T) {
	c := running(t, 2, 2, onRestart)
	fail(c)
	lwstest.Edit(c.FakeStore, "w", func(set *lwsv1.LeaderWorkerSet) {
		another := set.Status.Started[1]
		another.Pods = strings.Repeat("A", 512<<10)
		set.Status.Started = []lwsv1.StartedGroup{another}
		set.Status.Restarts[0].WholeAt = nil
	})
	c.do(c.decideSet())
	if r := c.status(); len(r.Started) != 1 || r.Started[0].Index != 1 || r.Restarts[0].WholeAt == nil {
		t.Errorf("%d started, %+v", len(r.Started), r.Restarts)
	}
}

// None holds at once: a group that waited is not said to go, also while the rollout
// that the change of the policy asks for is held.
func TestNoneEndsTheWaitWhileTheRolloutIsPaused(t *testing.T) {
	c, _ := waiting(t)
	lwstest.Edit(c.FakeStore, "w", func(set *lwsv1.LeaderWorkerSet) {
		lwstest.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue)(set)
	})
	c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
		spec.LeaderWorkerTemplate.RestartPolicy = lwsv1.NoneRestartPolicy
	})
	c.do(c.decideSet())
	if told := condition(c.status(), lws.ConditionBackoff); told.Status != metav1.ConditionFalse {
		t.Errorf("told %+v", told)
	}
	if status := c.status(); status.ReadyReplicas != 1 {
		t.Errorf("%d groups are ready", status.ReadyReplicas)
	}
}
