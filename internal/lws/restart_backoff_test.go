package lws_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/backoff"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/restart"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/test/fakeapi"
)

// fail lets group 0 fail once more, and returns for how long its restart waits.
func fail(c *cluster, end step) time.Duration {
	c.t.Helper()
	end(c)
	at := c.Now
	c.decided()
	r := c.status().Restarts[0]
	if r.Leader != c.leaders()["w-0"] {
		c.t.Fatalf("the failure is not in the status: %+v", r)
	}
	wait := r.DueAt.Sub(at)
	if wait > 0 {
		c.heldBack(r)
	}
	c.recreated()
	return wait.Truncate(5 * time.Second)
}

// heldBack checks that a group stays as it is until it is due, that the status says so,
// and that a new process finds the same time.
func (c *cluster) heldBack(r lwsv1.GroupRestarts) {
	c.t.Helper()
	plan := c.decideGroup("w-0")
	w, waits := waitFor(plan, lws.CodeBackoff)
	told := condition(c.status(), lwsset.ConditionBackoff)
	if !waits || !w.Until.Equal(r.DueAt.Time) || len(plan.Actions) != 0 || told.Status != metav1.ConditionTrue ||
		!strings.Contains(told.Message, r.DueAt.UTC().Format(time.RFC3339)) {
		c.t.Fatalf("not held back: %s %+v; reported %+v", short(plan), plan.Waits, told)
	}
	c.awake()
	for _, before := range []time.Duration{time.Second, 0} {
		c.Now = r.DueAt.Add(-before)
		if plan := c.decideGroup("w-0"); (len(plan.Actions) > 0) != (before == 0) {
			c.t.Fatalf("%s before it is due: %v", before, spelled(plan))
		}
	}
}

// The ways in which the only group fails again and again.
var (
	crashes  = on("w-0-1", crash)
	vanishes = gone[Pod]("w-0-1")
	deleted  = leaving[Pod]("w-0-1")
	drained  = then(on("w-0-1", disrupted), deleted)
)

// TestBackoff holds how long restarts wait: the first does not, those that follow do,
// whatever caused them, but for disruptions. A new template starts the count anew, and the evidence
// stays.
func TestBackoff(t *testing.T) {
	for name, tt := range map[string]struct {
		value string
		ends  []step
		want  []time.Duration
	}{
		"default":            {"", []step{crashes}, []time.Duration{0, 10, 20, 40, 80, 160, 300, 300}},
		"whatever the cause": {"", []step{deleted, vanishes, crashes}, []time.Duration{0, 10, 20}},
		"off":                {"off", []step{crashes}, []time.Duration{0, 0, 0, 0}},
		"as given":           {"first=30s,max=1m", []step{deleted}, []time.Duration{0, 30, 60, 60}},
		"a new template":     {"", []step{crashes, crashes, then(user(fakeapi.Image("image:2")), settled, crashes), crashes}, []time.Duration{0, 10, 0, 10}},
		"drained":            {"", []step{drained, drained, crashes, drained, crashes}, []time.Duration{0, 0, 0, 0, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			c := running(t, 1, 2, onRestart)
			if tt.value != "" {
				user(fakeapi.Annotation(backoff.AnnotationKey, tt.value))(c)
			}
			var got []time.Duration
			for i := range tt.want {
				got = append(got, fail(c, tt.ends[i%len(tt.ends)])/time.Second)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("seconds (-want +got)\n%s", diff)
			}
			if told := condition(c.status(), lwsset.ConditionBackoff); told.Status == metav1.ConditionTrue {
				t.Errorf("still reported: %+v", told)
			}
			c.pass(11 * time.Minute)
			wait := fail(c, crashes)
			if r := c.status().Restarts[0]; wait != 0 || r.Count != 1 || len(r.Failures) != 3 {
				t.Errorf("after ten minutes it waits %s: %+v", wait, r)
			}
		})
	}
}

// waiting lets group 0 fail for the third time in a row, and wait.
func waiting(t *testing.T) (*cluster, lwsv1.GroupRestarts) {
	t.Helper()
	c := running(t, 1, 2, onRestart)
	fail(c, crashes)
	fail(c, crashes)
	crashes(c)
	c.decided()
	r := c.status().Restarts[0]
	if wait := r.DueAt.Sub(c.Now); wait < 20*time.Second {
		t.Fatalf("invalid run: it waits %s", wait)
	}
	return c, r
}

func TestAShorterBackoffHoldsForGroupsThatWait(t *testing.T) {
	for value, want := range map[string]time.Duration{"off": 0, "first=2s": 5 * time.Second, "first=1m": 121 * time.Second} {
		c, r := waiting(t)
		then(user(fakeapi.Annotation(backoff.AnnotationKey, value)), after(10*time.Second), carriedOut)(c)
		if got := c.status().Restarts[0].DueAt.Sub(r.FailedAt.Time); got != want || len(c.decideSet().Actions) != 0 {
			t.Errorf("%s: it waits %s, want %s; then %v", value, got, want, spelled(c.decideSet()))
		}
		if recreates := len(c.decideGroup("w-0").Actions) > 0; recreates != (want < 10*time.Second) {
			t.Errorf("%s: it is recreated: %t", value, recreates)
		}
	}
}

// A group waits no longer without its decision, which an earlier version did not write, nor under
// None, which holds at once, also while the rollout that it asks for is paused.
func TestWhatEndsAWait(t *testing.T) {
	for name, happens := range map[string]step{
		"no decision": on("w-0", func(pod Pod) { delete(pod.Annotations, restart.AnnotationKey) }),
		"None":        then(pause, user(fakeapi.Policy(lwsv1.NoneRestartPolicy)), carriedOut, after(10*time.Second)),
	} {
		c, _ := waiting(t)
		then(happens, carriedOut)(c)
		if told := condition(c.status(), lwsset.ConditionBackoff); told.Status != metav1.ConditionFalse || c.status().ReadyReplicas != 1 {
			t.Errorf("%s: reported %+v, %d groups are ready", name, told, c.status().ReadyReplicas)
		}
	}
}
