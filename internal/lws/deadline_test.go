package lws_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// isOver reports whether a status says that the deadline is over.
func isOver(status lwsv1.LeaderWorkerSetStatus) bool {
	return condition(status, progressing).Reason == lws.CodeProgressDeadlineExceeded
}

// loads is a pod that runs, and is not ready.
func loads(pod Pod) {
	pod.Status.Phase, pod.Status.Conditions, pod.Status.ContainerStatuses = corev1.PodRunning, nil, nil
}

func deadlineOf(d string) edit { return fakeapi.Annotation(workload.ProgressDeadlineAnnotationKey, d) }

// specWritten edits a set as a user does, which its managed fields show.
func specWritten(edits ...edit) step {
	return func(c *cluster) {
		user(append(edits, func(set Set) {
			set.ManagedFields = []metav1.ManagedFieldsEntry{
				{Time: &metav1.Time{Time: c.Now}, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{},"f:spec":{"f:replicas":{}}}`)},
				{Time: &metav1.Time{Time: c.Now.Add(time.Hour)}, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{}}}`)},
			}
		})...)(c)
	}
}

// readyNow has the Ready condition of a pod become True now.
func readyNow(name string) step {
	return func(c *cluster) {
		on(name, func(pod Pod) {
			loads(pod)
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.Now)}}
		})(c)
	}
}

// startedNow has a container of a pod run from now on.
func startedNow(name string, restarts int32) step {
	return func(c *cluster) {
		on(name, func(pod Pod) {
			running := &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.Now)}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: restarts, State: corev1.ContainerState{Running: running}}}
		})(c)
	}
}

// stuck is a set with a deadline of ten minutes, of whose groups one has had an image that cannot be pulled for five.
func stuck(t testing.TB, size int32, edits ...edit) *cluster {
	c := running(t, 3, size, append(edits, deadlineOf("10m"))...)
	c.pass(time.Hour)
	then(on("w-1", pulls("ErrImagePull", false)), carriedOut, after(5*time.Minute))(c)
	return c
}

// TestTheClockCountsFromTheLastProgress: the deadline is over ten minutes after it, and not before.
func TestTheClockCountsFromTheLastProgress(t *testing.T) {
	gate := then(on("w-2", behind), unscheduledPods("SchedulingGated", "w-2"), after(20*time.Second), carriedOut)
	ungate := then(on("w-2", func(pod Pod) { pod.Spec.SchedulingGates = nil }), unscheduledPods("Unschedulable", "w-2"), carriedOut)
	for name, tt := range map[string]struct {
		happens step
		want    time.Duration // from the step on; zero if the clock stands still
	}{
		"nothing":                            {nothing, 5 * time.Minute},
		"the spec is written":                {specWritten(replicas(4)), 10 * time.Minute},
		"an annotation is written":           {user(fakeapi.Annotation("example.com/a", "b")), 5 * time.Minute},
		"a group becomes ready":              {readyNow("w-2"), 10 * time.Minute},
		"a worker is the last to be ready":   {readyNow("w-2-1"), 10 * time.Minute},
		"a pod of another group is ready":    {readyNow("w-1-1"), 5 * time.Minute},
		"a container starts":                 {startedNow("w-1", 0), 10 * time.Minute},
		"a container of a worker starts":     {then(down("w-1"), startedNow("w-1-1", 0)), 10 * time.Minute},
		"a container restarts":               {startedNow("w-1", 1), 5 * time.Minute},
		"a leader is created":                {func(c *cluster) { on("w-1", func(pod Pod) { pod.CreationTimestamp.Time = c.Now })(c) }, 10 * time.Minute},
		"the set is paused":                  {pause, 0},
		"a pod is behind a gate":             {gate, 0},
		"the gate is removed":                {then(gate, after(time.Hour), ungate), 10 * time.Minute},
		"a rollout is resumed":               {then(pause, specWritten(fakeapi.Image("image:2")), carriedOut, after(time.Hour), resume, carriedOut), 10 * time.Minute},
		"the deadline is off":                {user(deadlineOf("off")), 0},
		"another deadline":                   {user(deadlineOf("1h")), 55 * time.Minute},
		"the set has the default, a minute":  {then(user(without(workload.ProgressDeadlineAnnotationKey)), func(c *cluster) { c.observer.ProgressDeadline = 6 * time.Minute }), time.Minute},
		"the set has none, nor a default":    {user(without(workload.ProgressDeadlineAnnotationKey)), 0},
		"the group is ready, and fails anew": {then(readyNow("w-1"), carriedOut, after(time.Hour), on("w-1", loads), carriedOut), 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			c := stuck(t, 2, fakeapi.Policy(lwsv1.NoneRestartPolicy))
			tt.happens(c)
			from := c.Now
			if name == "a pod is behind a gate" {
				from = from.Add(time.Hour)
			}
			c.Now = from.Add(max(tt.want, time.Second) - time.Second)
			expect.That(t, !isOver(told(c, nil).Status), "over too early")
			wait, isAwaited := waitFor(c.decideSet(), lws.CodeProgressDeadline)
			expect.That(t, isAwaited == (tt.want > 0) && (!isAwaited || wait.Until.Equal(from.Add(tt.want))), "waits until %v, and it is %v", wait.Until, c.Now)
			c.pass(time.Second)
			expect.Equal(t, tt.want > 0, isOver(told(c, nil).Status))
		})
	}
}

// A group that backs off is recreated later.
func TestABackoffStopsTheClock(t *testing.T) {
	c, _ := waiting(t)
	then(user(deadlineOf("1s")), carriedOut, after(10*time.Second))(c)
	expect.That(t, !isOver(told(c, nil).Status), "got %v", brief(c.status()))
}

// TestAFailedSetSaysWhy: both conditions have the reason and one message, and one event says it.
func TestAFailedSetSaysWhy(t *testing.T) {
	for name, tt := range map[string]struct {
		happens step
		want    string
	}{
		"an image":      {nothing, "an image that cannot be pulled: 1, such as the one of pod w-1"},
		"no node":       {unscheduledPods("Unschedulable", "w-1"), "a node that their pods fit on"},
		"a quota":       {touched(lacks("w", "w-1", "w-2")), "pods that cannot be created"},
		"a refusal":     {func(c *cluster) { occupied("w-1")(c) }, "pod w-1"},
		"a slow group":  {on("w-1", loads), "group 1 is not ready; see: kubectl lockstep status w -n ns"},
		"a used budget": {then(on("w-1", loads), specWritten(fakeapi.Image("image:2")), carriedOut), "the rollout replaces no other: 1 may be down by maxUnavailable and maxSurge, and 1 are"},
	} {
		t.Run(name, func(t *testing.T) {
			c := stuck(t, 1, fakeapi.Policy(lwsv1.NoneRestartPolicy))
			then(tt.happens, after(30*time.Minute))(c)
			plan := c.decideSet()
			write := oneStatus(t, plan)
			said := condition(write.Status, progressing)
			expect.That(t, said.Status == metav1.ConditionFalse && strings.Contains(said.Message, tt.want), "got %+v", said)
			expect.That(t, strings.Contains(said.Message, " of 3 groups are ready") && strings.Contains(said.Message, "without progress since "), "got %q", said.Message)
			stalled := condition(write.Status, "Stalled")
			expect.That(t, stalled.Status == metav1.ConditionTrue && stalled.Reason == said.Reason && stalled.Message == said.Message, "got %+v", stalled)
			var events int
			for _, event := range write.Tell.Done {
				if event.Reason == lws.CodeProgressDeadlineExceeded {
					events++
				}
			}
			expect.Equalf(t, 1, events, "events")
			c.do(plan)
			then(after(time.Hour), startedNow("w-0", 0))(c)
			expect.Emptyf(t, statusWrites(c.decideSet()), "written again")
		})
	}
}

// TestAFailedSetRecovers: nothing but a change of the spec and a group that becomes ready ends it.
func TestAFailedSetRecovers(t *testing.T) {
	for name, tt := range map[string]struct {
		happens step
		want    bool
	}{
		"a container starts":        {startedNow("w-1", 0), false},
		"the operator starts anew":  {(*cluster).awake, false},
		"the spec is written":       {specWritten(fakeapi.Image("image:2")), true},
		"another group is ready":    {readyNow("w-0"), true},
		"the group is ready":        {readyNow("w-1"), true},
		"the set is paused":         {pause, true},
		"the deadline is longer":    {user(deadlineOf("4h")), true},
		"the deadline is taken off": {user(deadlineOf("off")), true},
	} {
		t.Run(name, func(t *testing.T) {
			c := stuck(t, 1, fakeapi.Policy(lwsv1.NoneRestartPolicy))
			then(after(time.Hour), carriedOut, after(time.Minute), tt.happens)(c)
			set := told(c, nil)
			expect.Equalf(t, tt.want, !isOver(set.Status), "%v", brief(set.Status))
			expect.Equal(t, tt.want, condition(set.Status, "Stalled").Reason != lws.CodeProgressDeadlineExceeded)
			checkForTools(t, set)
		})
	}
}
