package lws_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/test/lwstest"
)

// A kubelet ends a pod that is deleted in a terminal phase before it is gone: a
// leader that somebody deleted did not fail, whatever its exit code says then.
func TestALeaderThatEndsBecauseItIsDeletedDidNotFail(t *testing.T) {
	deleted := func(c *cluster, grace int64, exit time.Duration) {
		lwstest.Edit(c.FakeStore, "w-0", func(pod *corev1.Pod) {
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: c.Now.Add(time.Duration(grace) * time.Second)}, &grace
			pod.Status.Phase = corev1.PodFailed
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "w", State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: 143, Reason: "Error", FinishedAt: metav1.NewTime(c.Now.Add(exit))},
			}}}
		})
	}
	for name, tt := range map[string]struct {
		grace int64
		exit  time.Duration
		want  bool
	}{
		"it ends within its grace period":                  {30, 2 * time.Second, false},
		"the kubelet lets go of it":                        {0, 2 * time.Second, false},
		"it ends within a second":                          {30, 0, false},
		"it ends within a second, and the kubelet lets go": {0, 0, false},
		"it had ended, and was cleared away":               {0, -2 * time.Second, true},
	} {
		c := running(t, 1, 2, onRestart)
		deleted(c, tt.grace, tt.exit)
		c.pass(3 * time.Second)
		if finding := c.decideGroup("w-0").Finding; (finding != nil) != tt.want {
			t.Errorf("%s: found %+v", name, finding)
		}
	}
}

// A failure that was found before the set knew what the group started with is not
// forgotten when the group is looked at again before the set was.
func TestAFailureIsNotForgottenBeforeItsSetLooks(t *testing.T) {
	c := newCluster(t)
	c.pass(time.Minute)
	lwstest.Add(c.FakeStore, lwstest.Set("w", 1, 3, whenStarted))
	starting(c)
	c.Run(find[*corev1.Pod](c, "w-0-2"))
	if found := c.noted("w-0").group("w-0").Finding; found.Started == "" || len(c.status().Started) != 0 {
		t.Fatalf("invalid run: found %+v", found)
	}
	lwstest.Edit(c.FakeStore, "w-0-2", crash)
	c.noted("w-0", "w-0")
	c.do(c.decideSet())
	if r := c.status().Restarts; len(r) != 1 || r[0].Failures[0].Pod != "w-0-2" {
		t.Errorf("told %+v", r)
	}
}

// A failed leader is cleared away, and replaced, faster than its set looks.
func TestALeaderThatFailedLeavesEvidenceAfterItIsGone(t *testing.T) {
	for name, replaced := range map[string]bool{"gone": false, "replaced": true} {
		c := running(t, 2, 2, onRestart)
		lwstest.Edit(c.FakeStore, "w-1", func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted" })
		failed := find[*corev1.Pod](c, "w-1").UID
		c.noted("w-1")
		lwstest.Drop[*corev1.Pod](c.FakeStore, "w-1")
		if replaced {
			c.Sync(find[*appsv1.StatefulSet](c, "w"))
		}
		c.do(c.decideSet())
		r := c.status().Restarts
		if len(r) != 1 || r[0].Leader != failed || r[0].Count != 1 || r[0].Failures[0].Reason != "Evicted" {
			t.Fatalf("%s: told %+v", name, r)
		}
		if again := c.recreated("w-0", "w-1"); name == "replaced" && len(again) != 0 {
			t.Errorf("%s: recreated %v", name, again)
		}
		if r := c.status().Restarts; len(r) != 1 || r[0].Count != 1 || r[0].WholeAt == nil {
			t.Errorf("%s: in the end %+v", name, r)
		}
	}
}

// A failed leader is cleared away, and replaced, faster than anybody looks at its group.
func TestALeaderThatFailedLeavesEvidenceThoughNobodyLooked(t *testing.T) {
	for name, replaced := range map[string]bool{"gone": false, "replaced": true} {
		c := running(t, 2, 2, onRestart)
		failed := lwstest.Edit(c.FakeStore, "w-1", func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted" })
		c.memory.Over(failed, c.Now)
		lwstest.Drop[*corev1.Pod](c.FakeStore, "w-1")
		if replaced {
			c.Sync(find[*appsv1.StatefulSet](c, "w"))
		}
		c.noted("w-1")
		c.do(c.decideSet())
		r := c.status().Restarts
		if len(r) != 1 || r[0].Leader != failed.UID || r[0].Count != 1 || r[0].Failures[0].Reason != "Evicted" {
			t.Fatalf("%s: told %+v", name, r)
		}
		c.recreated("w-0", "w-1")
		if r := c.status().Restarts; len(r) != 1 || r[0].Count != 1 || r[0].WholeAt == nil {
			t.Errorf("%s: in the end %+v", name, r)
		}
	}
}

// One that was looked at, or belongs to another life of its set, has nothing to add.
func TestALeaderThatEndedIsRememberedOnce(t *testing.T) {
	c := running(t, 2, 2, onRestart)
	over := lwstest.Edit(c.FakeStore, "w-1", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
	c.memory.Over(over, c.Now)
	if f := c.decideGroup("w-1").Finding; f == nil || f.Leader.UID != over.UID {
		t.Fatalf("found %+v", f)
	}
	lwstest.Drop[*corev1.Pod](c.FakeStore, "w-1")
	if f := c.decideGroup("w-1").Finding; f != nil {
		t.Errorf("found again: %+v", f)
	}
	strange := over.DeepCopy()
	strange.OwnerReferences[0].UID = "former"
	c.memory.Over(strange, c.Now)
	if f := c.decideGroup("w-1").Finding; f != nil {
		t.Errorf("found of another life: %+v", f)
	}
}

// What a pod leaves to say is shown on terminals.
func TestEvidenceCarriesNoControlCharacters(t *testing.T) {
	c := running(t, 1, 2, onRestart)
	lwstest.Edit(c.FakeStore, "w-0-1", func(pod *corev1.Pod) {
		crash(pod)
		pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.Message = "\x1b]0;mine\x07one\ttwo\r\nthree\u009b2J"
	})
	c.noted("w-0")
	c.do(c.decideSet())
	if got, want := c.status().Restarts[0].Failures[0].Message, "]0;mineone\ttwo\nthree2J"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A container that crashed an hour ago is not why the group is recreated now.
func TestEvidenceIsOfWhatHappenedLast(t *testing.T) {
	c := running(t, 1, 2, onRestart)
	ended := func(name string, exit int32, ago time.Duration) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, RestartCount: 1, LastTerminationState: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: exit, FinishedAt: metav1.NewTime(c.Now.Add(-ago))},
		}}
	}
	for want, statuses := range map[string][]corev1.ContainerStatus{
		"sidecar": {ended("model", 1, time.Hour), ended("sidecar", 0, time.Second)},
		"model":   {ended("model", 1, 3*time.Second), ended("sidecar", 0, time.Second)},
	} {
		lwstest.Edit(c.FakeStore, "w-0-1", func(pod *corev1.Pod) { pod.Status.ContainerStatuses = statuses })
		if got := c.decideGroup("w-0").Finding.Failure.Container; got != want {
			t.Errorf("told of container %q, want %q", got, want)
		}
	}
}

// Who deletes a leader and orphans its workers has them adopted by the next.
func TestOrphanedWorkersDoNotEndWithTheirLeader(t *testing.T) {
	c := running(t, 1, 3, onRestart)
	lwstest.Terminate[*corev1.Pod](c.FakeStore, "w-0", metav1.FinalizerOrphanDependents)
	if got := spelled(c.decideGroup("w-0")); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

// A process that stands by hears of all leaders that end, and of none that is looked at.
func TestWhatWasHeardOfLongAgoIsNotCountedAgain(t *testing.T) {
	c := running(t, 2, 2, onRestart)
	standby := lwscache.NewMemory(c.Now)
	failed := lwstest.Edit(c.FakeStore, "w-1", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
	standby.Over(failed, c.Now)
	c.recreated("w-0", "w-1")
	c.pass(20 * time.Minute)
	lwstest.Edit(c.FakeStore, "w-1-1", crash)
	c.recreated("w-0", "w-1")
	before := c.status().Restarts
	if len(before) != 1 || before[0].Leader == failed.UID {
		t.Fatalf("invalid run: told %+v", before)
	}
	c.pass(time.Hour)
	c.awake()
	c.memory = standby
	c.observer = lwscache.New(c.cached, c.Live(), c.memory)
	c.recreated("w-0", "w-1")
	if diff := cmp.Diff(before, c.status().Restarts); diff != "" {
		t.Errorf("once another process acts (-before +after)\n%s", diff)
	}
}

// A look that fails has told nobody.
func TestALeaderThatEndedIsRememberedBeyondALookThatFails(t *testing.T) {
	c := running(t, 2, 2, onRestart)
	failed := lwstest.Edit(c.FakeStore, "w-1", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
	c.memory.Over(failed, c.Now)
	lwstest.Drop[*corev1.Pod](c.FakeStore, "w-1")
	c.cached.Fail = func(lwstest.Name) error { return apierrors.NewTimeoutError("busy", 1) }
	for range 3 { // for longer than another process would take to answer
		if _, err := c.observer.Group(ctx, key("w-1"), c.Now); err == nil {
			t.Fatal("invalid run: the look did not fail")
		}
		c.pass(40 * time.Second)
		c.memory.Over(find[*corev1.Pod](c, "w-0"), c.Now) // which forgets what is long past
	}
	c.cached.Fail = nil
	if f := c.decideGroup("w-1").Finding; f == nil || f.Leader.UID != failed.UID {
		t.Errorf("found %+v", f)
	}
}

// What a runtime gives as a reason has no bound, and a status and its conditions have.
func TestAReasonIsAWord(t *testing.T) {
	for given, want := range map[string]string{
		"OOMKilled": "OOMKilled", "\x1b[2JBad\r\nWord": "[2JBad", "": lws.CodePodRestarted, "\t\r": lws.CodePodRestarted,
		strings.Repeat("é", 1<<20): strings.Repeat("é", 30) + "…",
	} {
		c := running(t, 1, 2, onRestart)
		lwstest.Edit(c.FakeStore, "w-0-1", func(pod *corev1.Pod) {
			crash(pod)
			pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.Reason = given
		})
		c.noted("w-0")
		c.do(c.decideSet())
		if got := c.status().Restarts[0].Failures[0].Reason; got != want {
			t.Errorf("got %.99q, want %q", got, want)
		}
	}
}
