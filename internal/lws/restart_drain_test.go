package lws_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/lwstest"
)

// drainWorker deletes a worker as an eviction does, and lets its kubelet end it: it
// has failed by the time it is looked at.
func drainWorker(c *cluster) {
	lwstest.Terminate[*corev1.Pod](c.FakeStore, "w-0-1")
	lwstest.Edit(c.FakeStore, "w-0-1", func(pod *corev1.Pod) {
		grace := int64(30)
		pod.DeletionGracePeriodSeconds, pod.DeletionTimestamp = &grace, &metav1.Time{Time: c.Now.Add(30 * time.Second)}
		pod.Status.Phase = corev1.PodFailed
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 143, Reason: "Error", FinishedAt: metav1.NewTime(c.Now),
		}}}}
	})
}

// told is what the status tells of group 0 once its set has looked.
func told(c *cluster) lwsv1.GroupRestarts {
	c.t.Helper()
	c.do(c.decideGroup("w-0"))
	c.do(c.decideSet())
	return c.status().Restarts[0]
}

// Nodes are drained one after the other, and each takes a worker of the group along:
// the group comes again each time, and waits for nothing.
func TestADrainedWorkerIsNotHeldAgainstTheGroup(t *testing.T) {
	c := running(t, 1, 2, onRestart)
	type answer struct {
		Reason string
		Count  int32
		Wait   time.Duration
	}
	var got []answer
	for _, harm := range []func(){
		func() { drainWorker(c) }, func() { drainWorker(c) }, func() { drainWorker(c) },
		func() { lwstest.Edit(c.FakeStore, "w-0-1", crash) },
		func() { drainWorker(c) },
		func() { lwstest.Edit(c.FakeStore, "w-0-1", crash) },
	} {
		harm()
		at := c.Now
		r := told(c)
		got = append(got, answer{r.Failures[len(r.Failures)-1].Reason, r.Count, r.DueAt.Sub(at)})
		c.Now = r.DueAt.Time
		c.recreated("w-0")
	}
	drained, crashed := answer{lws.CodePodDeleted, 0, 0}, answer{"OOMKilled", 1, 0}
	want := []answer{drained, drained, drained, crashed, {lws.CodePodDeleted, 1, 0}, {"OOMKilled", 2, 10 * time.Second}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A worker that ended by itself is cleared away by its StatefulSet. That it is on its
// way out when it is looked at hides nothing.
func TestAWorkerThatEndedBeforeItWasDeletedFailed(t *testing.T) {
	for reason, end := range map[string]func(*corev1.Pod){
		"Evicted":   func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted" },
		"OOMKilled": func(pod *corev1.Pod) { crash(pod) },
	} {
		c := running(t, 1, 2, onRestart)
		lwstest.Edit(c.FakeStore, "w-0-1", end)
		lwstest.Terminate[*corev1.Pod](c.FakeStore, "w-0-1")
		if r := told(c); r.Count != 1 || r.Failures[0].Reason != reason {
			t.Errorf("%s: told %+v", reason, r)
		}
	}
}

// Times are of whole seconds. Of a worker that ended in the second in which it was
// deleted, its reason tells which came first: what a kubelet ends because it was
// asked to has none.
func TestAWorkerThatWasEvictedAndClearedInOneSecondFailed(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		after        time.Duration
		want         int32
	}{
		{"evicted", "Evicted", 0, 1},
		{"by the shutdown of its node", "Terminated", 0, 1},
		{"deleted", "", 0, 0},
		{"deleted, and its node shut down meanwhile", "Terminated", time.Second, 0},
	} {
		c := running(t, 1, 2, onRestart)
		none := int64(0)
		lwstest.Edit(c.FakeStore, "w-0-1", func(pod *corev1.Pod) {
			pod.DeletionGracePeriodSeconds, pod.DeletionTimestamp = &none, &metav1.Time{Time: c.Now}
			pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, tt.reason
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "Error", FinishedAt: metav1.NewTime(c.Now.Add(tt.after)),
			}}}}
		})
		if r := told(c); r.Count != tt.want {
			t.Errorf("%s: counted %d times, want %d", tt.name, r.Count, tt.want)
		}
	}
}

// One that was seen to end before anybody deleted it failed, however soon it was
// cleared away.
func TestALeaderThatEndedFirstFailedInWhateverSecond(t *testing.T) {
	c := running(t, 1, 2, onRestart)
	over := lwstest.Edit(c.FakeStore, "w-0", func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted"
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: "Error", FinishedAt: metav1.NewTime(c.Now),
		}}}}
	})
	c.memory.Over(over, c.Now)
	lwstest.Terminate[*corev1.Pod](c.FakeStore, "w-0")
	lwstest.Edit(c.FakeStore, "w-0", func(pod *corev1.Pod) {
		none := int64(0)
		pod.DeletionGracePeriodSeconds, pod.DeletionTimestamp = &none, &metav1.Time{Time: c.Now}
	})
	if f := c.decideGroup("w-0").Finding; f == nil || f.Leader.UID != over.UID || f.Failure.Code != lws.CodePodEnded {
		t.Errorf("found %+v", f)
	}
}
