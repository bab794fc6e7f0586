package lws_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/backoff"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/test/fakeapi"
)

// fail has group 0 fail once more, and returns for how long its restart waits.
func fail(c *cluster, end func(*cluster)) time.Duration {
	c.t.Helper()
	at, leader := c.Now, find[*corev1.Pod](c, "w-0").UID
	end(c)
	c.do(c.decideGroup("w-0"))
	c.do(c.decideSet())
	r := c.status().Restarts[0]
	if r.Leader != leader {
		c.t.Fatalf("the failure is not in the status: %+v", r)
	}
	wait := r.DueAt.Sub(at)
	if wait > 0 {
		c.heldBack(r)
	}
	c.recreated("w-0")
	return wait.Truncate(5 * time.Second)
}

// heldBack checks that a group stays as it is until it is due, that the status says so,
// and that a new process finds the same time.
func (c *cluster) heldBack(r lwsv1.GroupRestarts) {
	c.t.Helper()
	plan := c.decideGroup("w-0")
	w, waits := waitFor(plan, lws.CodeBackoff)
	if !waits || !w.Until.Equal(r.DueAt.Time) || len(plan.Actions) != 0 {
		c.t.Fatalf("not held back: %v %+v", spelled(plan), plan.Waits)
	}
	told := condition(c.status(), lws.ConditionBackoff)
	if told.Status != metav1.ConditionTrue || !strings.Contains(told.Message, r.DueAt.UTC().Format(time.RFC3339)) {
		c.t.Fatalf("reported %+v", told)
	}
	c.awake()
	for before, goes := range map[time.Duration]bool{time.Second: false, 0: true} {
		c.Now = r.DueAt.Add(-before)
		if plan := c.decideGroup("w-0"); (len(plan.Actions) > 0) != goes {
			c.t.Fatalf("%s before it is due: %v", before, spelled(plan))
		}
	}
	c.Now = r.DueAt.Time
}

// The ways in which the only group fails again and again.
var (
	crashes  = func(c *cluster) { fakeapi.Edit(c.Server, "w-0-1", crash) }
	vanishes = func(c *cluster) { fakeapi.Drop[*corev1.Pod](c.Server, "w-0-1") }
	deleted  = func(c *cluster) { fakeapi.Terminate[*corev1.Pod](c.Server, "w-0-1") }
	drained  = func(c *cluster) { fakeapi.Edit(c.Server, "w-0-1", disrupted); deleted(c) }
)

// TestBackoff holds how long restarts wait: the first does not, those that follow do,
// whatever caused them, but for disruptions.
func TestBackoff(t *testing.T) {
	seconds := func(s ...int) (all []time.Duration) {
		for _, one := range s {
			all = append(all, time.Duration(one)*time.Second)
		}
		return all
	}
	for _, tt := range []struct {
		name, value string
		ends        []func(*cluster)
		want        []time.Duration
	}{
		{"default", "", []func(*cluster){crashes}, seconds(0, 10, 20, 40, 80, 160, 300, 300)},
		{"whatever the cause", "", []func(*cluster){deleted, vanishes, crashes}, seconds(0, 10, 20)},
		{"off", "off", []func(*cluster){crashes}, seconds(0, 0, 0, 0)},
		{"as given", "first=30s,max=1m", []func(*cluster){deleted}, seconds(0, 30, 60, 60)},
		{"drained", "", []func(*cluster){drained, drained, crashes, drained, crashes}, seconds(0, 0, 0, 0, 10)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := running(t, 1, 2, onRestart, func(set *lwsv1.LeaderWorkerSet) {
				if tt.value != "" {
					fakeapi.Annotation(backoff.AnnotationKey, tt.value)(set)
				}
			})
			var got []time.Duration
			for i := range tt.want {
				got = append(got, fail(c, tt.ends[i%len(tt.ends)]))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if told := condition(c.status(), lws.ConditionBackoff); told.Status == metav1.ConditionTrue {
				t.Errorf("still reported: %+v", told)
			}
			c.pass(11 * time.Minute)
			if wait := fail(c, crashes); wait != 0 || c.status().Restarts[0].Count != 1 {
				t.Errorf("after ten minutes it waits %s: %+v", wait, c.status().Restarts)
			}
			if kept := len(c.status().Restarts[0].Failures); kept != 3 {
				t.Errorf("%d failures are kept", kept)
			}
		})
	}
}

// A leader that went before its set saw the decision is counted when the next one fails.
func TestARestartThatTheSetMissedIsCounted(t *testing.T) {
	c := running(t, 1, 2, onRestart)
	fakeapi.Edit(c.Server, "w-0-1", crash)
	c.do(c.decideGroup("w-0"))
	replaced(c)
	for range 3 {
		c.turn("w-0")
		c.collect()
	}
	crashes(c)
	plan := c.decideGroup("w-0")
	if _, waits := waitFor(plan, lws.CodeBackoff); !waits {
		t.Fatalf("the second restart does not wait: %v", spelled(plan))
	}
	c.do(plan)
	c.do(c.decideSet())
	if r := c.status().Restarts; len(r) != 1 || r[0].Count != 2 {
		t.Errorf("got %+v", r)
	}
	if again := spelled(c.decideSet()); len(again) != 0 {
		t.Errorf("then %v", again)
	}
}

// A new template starts the count anew; the evidence stays.
func TestFailuresAreCountedAnewUnderANewTemplate(t *testing.T) {
	c := running(t, 1, 2, onRestart)
	for range 3 {
		fail(c, crashes)
	}
	image(c, "image:2")
	c.settleAll()
	for _, want := range []time.Duration{0, 10 * time.Second} {
		if wait := fail(c, crashes); wait != want {
			t.Errorf("it waits %s, want %s", wait, want)
		}
	}
	if r := c.status().Restarts[0]; r.Count != 2 || len(r.Failures) < 3 {
		t.Errorf("got %+v", r)
	}
}

// waiting has group 0 fail for the third time in a row, and wait.
func waiting(t *testing.T) (*cluster, lwsv1.GroupRestarts) {
	t.Helper()
	c := running(t, 1, 2, onRestart)
	fail(c, crashes)
	fail(c, crashes)
	crashes(c)
	c.do(c.decideGroup("w-0"))
	c.do(c.decideSet())
	r := c.status().Restarts[0]
	if wait := r.DueAt.Sub(c.Now); wait < 20*time.Second {
		t.Fatalf("invalid run: it waits %s", wait)
	}
	return c, r
}

func TestAShorterBackoffHoldsForGroupsThatWait(t *testing.T) {
	for value, want := range map[string]time.Duration{"off": 0, "first=2s": 5 * time.Second, "first=1m": 121 * time.Second} {
		c, r := waiting(t)
		fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { fakeapi.Annotation(backoff.AnnotationKey, value)(set) })
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

// An earlier version of the operator wrote the status first: its leader has no decision yet.
func TestAGroupWithoutADecisionDoesNotWait(t *testing.T) {
	c, _ := waiting(t)
	fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) { delete(pod.Annotations, restart.AnnotationKey) })
	c.do(c.decideSet())
	if told := condition(c.status(), lws.ConditionBackoff); told.Status != metav1.ConditionFalse {
		t.Errorf("reported %+v", told)
	}
}

// A clock that was put back makes no group wait longer.
func TestAClockThatIsPutBackDelaysNoRestart(t *testing.T) {
	c, _ := waiting(t)
	c.pass(-2 * time.Hour)
	c.awake()
	if got := c.recreated("w-0"); len(got) != 1 {
		t.Error("it is not recreated")
	}
}

// None holds at once, also while the rollout that it asks for is paused.
func TestNoneEndsTheWaitWhileTheRolloutIsPaused(t *testing.T) {
	c, _ := waiting(t)
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		fakeapi.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue)(set)
	})
	c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
		spec.LeaderWorkerTemplate.RestartPolicy = lwsv1.NoneRestartPolicy
	})
	for range 2 {
		c.do(c.decideSet())
		c.pass(10 * time.Second)
	}
	if told := condition(c.status(), lws.ConditionBackoff); told.Status != metav1.ConditionFalse {
		t.Errorf("reported %+v", told)
	}
	if status := c.status(); status.ReadyReplicas != 1 {
		t.Errorf("%d groups are ready", status.ReadyReplicas)
	}
}
