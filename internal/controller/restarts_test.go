package controller

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/test/lwstest"
)

// A group that finds that it failed has its set write that down, and the set has
// the group act on it: neither waits for an event.
func TestAFailureGoesFromTheGroupToItsSetAndBack(t *testing.T) {
	c := newCluster(t, 0, lwstest.Set("w", 1, 1, lwstest.Policy(lwsv1.RecreateGroupOnPodRestart)))
	var looked []string
	c.wakeGroup = func(leader client.Object) { looked = append(looked, leader.GetName()) }
	c.live(20, "w-0")
	woken := c.woken
	lwstest.Edit(c.FakeStore, "w-0", func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "w", RestartCount: 1}}
	})
	if _, err := c.lookAtGroup("w-0"); err != nil || c.woken == woken {
		t.Fatalf("the set was not woken: %v", err)
	}
	if _, err := c.lookAtSet(); err != nil || len(looked) != 1 || looked[0] != "w-0" {
		t.Fatalf("the groups woken are %v: %v", looked, err)
	}
	if _, err := c.lookAtGroup("w-0"); err != nil {
		t.Fatal(err)
	}
	if pod := lwstest.Find[*corev1.Pod](c.FakeStore, "w-0"); pod.DeletionTimestamp == nil {
		t.Error("the leader was not deleted")
	}
	if _, err := c.lookAtSet(); err != nil || len(looked) != 1 {
		t.Errorf("the groups woken are %v: %v", looked, err)
	}
}

// Failures of a group that was made under None are nothing to its set, however often
// the group is looked at.
func TestAFailureThatIsNothingToTheSetDoesNotWakeIt(t *testing.T) {
	c := newCluster(t, 0, lwstest.Set("w", 1, 1, lwstest.Policy(lwsv1.NoneRestartPolicy)))
	c.live(20, "w-0")
	lwstest.Edit(c.FakeStore, "w", func(set *lwsv1.LeaderWorkerSet) {
		lwstest.Policy(lwsv1.RecreateGroupOnPodRestart)(set)
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{Partition: lwstest.Ptr[int32](1)}
		set.Generation++
	})
	c.live(20, "w-0")
	c.look("w-0")
	lwstest.Edit(c.FakeStore, "w-0", func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "w", RestartCount: 1}}
	})
	woken := c.woken
	for range 3 {
		if _, err := c.lookAtGroup("w-0"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.lookAtSet(); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.woken - woken; got != 1 {
		t.Errorf("the set was woken %d times, want once, to say so", got)
	}
	if pod := lwstest.Find[*corev1.Pod](c.FakeStore, "w-0"); pod == nil || pod.DeletionTimestamp != nil {
		t.Error("the group was recreated against its policy")
	}
}

// Who ended by itself is told from who was deleted, and leaders from workers.
func TestWhichLeadersAreRememberedToHaveEnded(t *testing.T) {
	now := metav1.Now()
	tests := []struct {
		name   string
		change func(*corev1.Pod)
		want   bool
	}{
		{"a leader that failed", func(*corev1.Pod) {}, true},
		{"one that runs", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }, false},
		{"one that was deleted", func(pod *corev1.Pod) { pod.DeletionTimestamp = &now }, false},
		{"a worker", func(pod *corev1.Pod) { pod.Labels[lwsv1.WorkerIndexLabelKey] = "1" }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 0, lwstest.Set("w", 1, 1, lwstest.Policy(lwsv1.RecreateGroupOnPodRestart)))
			c.live(20, "w-0")
			leader := lwstest.Find[*corev1.Pod](c.FakeStore, "w-0").DeepCopy()
			leader.Status.Phase = corev1.PodFailed
			tt.change(leader)
			ends(c.memory, c.now).Update(t.Context(), event.UpdateEvent{ObjectOld: leader, ObjectNew: leader}, nil)
			lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0")
			woken := c.woken
			if _, err := c.lookAtGroup("w-0"); err != nil {
				t.Fatal(err)
			}
			if got := c.woken != woken; got != tt.want {
				t.Errorf("the set is told: %t", got)
			}
		})
	}
}

// A worker that went between two looks is judged by how it was seen last: to delete it
// is not held against its group, however late the look, and what ended leaves evidence.
func TestAWorkerThatIsGoneIsJudgedByHowItWasSeenLast(t *testing.T) {
	now, grace := metav1.Now(), int64(30)
	ended := func(pod *corev1.Pod, at metav1.Time) {
		pod.Status.Phase = corev1.PodFailed
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "w", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", FinishedAt: at},
		}}}
	}
	tests := []struct {
		name    string
		change  func(*corev1.Pod)
		unknown bool
		reason  string
		count   int32
	}{
		{"deleted at once", func(*corev1.Pod) {}, false, "PodDeleted", 0},
		{"drained", func(pod *corev1.Pod) {
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &grace
			ended(pod, now)
		}, false, "PodDeleted", 0},
		{"ended, and cleared away", func(pod *corev1.Pod) { ended(pod, now) }, false, "OOMKilled", 1},
		{"the watch had missed it", func(*corev1.Pod) {}, true, "PodGone", 1},
		{"another one of that name", func(pod *corev1.Pod) { pod.UID = "another" }, false, "PodGone", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 0, lwstest.Set("w", 1, 2, lwstest.Policy(lwsv1.RecreateGroupOnPodRestart)))
			c.live(20, "w-0")
			worker := lwstest.Find[*corev1.Pod](c.FakeStore, "w-0-1").DeepCopy()
			tt.change(worker)
			ends(c.memory, c.now).Delete(t.Context(), event.DeleteEvent{Object: worker, DeleteStateUnknown: tt.unknown}, nil)
			lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0-1")
			if _, err := c.lookAtGroup("w-0"); err != nil {
				t.Fatal(err)
			}
			if _, err := c.lookAtSet(); err != nil {
				t.Fatal(err)
			}
			told := lwstest.Find[*lwsv1.LeaderWorkerSet](c.FakeStore, "w").Status.Restarts
			if len(told) != 1 || told[0].Count != tt.count || told[0].Failures[0].Reason != tt.reason || told[0].Failures[0].Pod != "w-0-1" {
				t.Errorf("told %+v, want %s, held against the group %d times", told, tt.reason, tt.count)
			}
		})
	}
}

// A process that has lost its lease may have written a failure down in its last
// moment, after all groups were looked at by the next.
func TestAFailureThatAnotherProcessWroteDownIsAnswered(t *testing.T) {
	at := func(seconds int64) metav1.Time { return metav1.NewTime(time.Unix(seconds, 0)) }
	told := func(restarts ...lwsv1.GroupRestarts) *lwsv1.LeaderWorkerSet {
		set := lwstest.Set("w", 3, 2, lwstest.Policy(lwsv1.RecreateGroupOnPodRestart))
		set.Status.Restarts = restarts
		return set
	}
	before := told(lwsv1.GroupRestarts{Index: 0, Leader: "a", DueAt: at(9)}, lwsv1.GroupRestarts{Index: 1, Leader: "b", DueAt: at(9)})
	for _, tt := range []struct {
		name  string
		after *lwsv1.LeaderWorkerSet
		want  []string
	}{
		{"nothing new", before, nil},
		{"a group", told(append(before.Status.Restarts, lwsv1.GroupRestarts{Index: 2, Leader: "c", DueAt: at(9)})...), []string{"w-2"}},
		{"under another leader", told(lwsv1.GroupRestarts{Index: 0, Leader: "d", DueAt: at(9)}), []string{"w-0"}},
		{"due earlier", told(lwsv1.GroupRestarts{Index: 1, Leader: "b", DueAt: at(3)}), []string{"w-1"}},
	} {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		verdicts().Update(context.Background(), event.UpdateEvent{ObjectOld: before, ObjectNew: tt.after}, q)
		var woken []string
		for q.Len() > 0 {
			request, _ := q.Get()
			woken = append(woken, request.Name)
		}
		if diff := cmp.Diff(tt.want, woken); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.name, diff)
		}
	}
}

// A cache that lags has a leader deleted twice; users hear of one restart.
func TestADeleteOfWhatHasGoneIsNotTold(t *testing.T) {
	c := newCluster(t, 0, lwstest.Set("w", 1, 1))
	recorder := events.NewFakeRecorder(1)
	c.narrate = report.New(recorder)
	gone := action.Delete{
		Object: identity.Ref{Kind: identity.KindPod, Namespace: lwstest.Namespace, Name: "w-0", UID: "u", ResourceVersion: "1"},
		Tell:   action.Telling{Done: []action.Event{{Reason: "RecreateGroup", Action: "Delete", Note: "gone"}}},
	}
	if err := c.do(t.Context(), c.act, lwstest.Find[*lwsv1.LeaderWorkerSet](c.FakeStore, "w"), gone); err != nil {
		t.Fatal(err)
	}
	if len(recorder.Events) != 0 {
		t.Errorf("told %q", <-recorder.Events)
	}
}

// A cache may be seconds late to show a deletion. The leader is not deleted again, nor
// looked at many times a second, until it does.
func TestALeaderIsDeletedOnceHoweverLateTheCacheIs(t *testing.T) {
	c := newCluster(t, 0, lwstest.Set("w", 1, 1, lwstest.Policy(lwsv1.RecreateGroupOnPodRestart)))
	c.live(20, "w-0")
	lwstest.Edit(c.FakeStore, "w-0", func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "w", RestartCount: 1}}
	})
	c.look("w-0")
	c.look("w-0")
	if pod := lwstest.Find[*corev1.Pod](c.FakeStore, "w-0"); pod.DeletionTimestamp == nil {
		t.Fatal("the leader was not deleted")
	}
	late := func(pod *corev1.Pod) { pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil }
	lwstest.Edit(c.FakeStore, "w-0", late)
	if result, err := c.lookAtGroup("w-0"); err != nil || result.RequeueAfter != 0 {
		t.Errorf("looks again after %v: %v", result.RequeueAfter, err)
	}
	if pod := lwstest.Find[*corev1.Pod](c.FakeStore, "w-0"); pod.DeletionTimestamp != nil {
		t.Error("the leader was deleted again")
	}
	c.wait(time.Hour) // not the cache, but the API server shows an older state
	c.look("w-0")
	if pod := lwstest.Find[*corev1.Pod](c.FakeStore, "w-0"); pod.DeletionTimestamp == nil {
		t.Error("the leader that stands again was not deleted")
	}
}

// What groups started with that were restarted before is not for their set to find: it
// hears of it also when nothing else of them will change.
func TestTheSetHearsWhatAGroupStartedWithThatWasRestartedBefore(t *testing.T) {
	c := newCluster(t, 0, lwstest.Set("w", 1, 1, lwstest.Policy(lwsv1.NoneRestartPolicy)))
	c.live(20, "w-0")
	lwstest.Edit(c.FakeStore, "w-0", func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "w", RestartCount: 1}}
	})
	lwstest.Edit(c.FakeStore, "w", func(set *lwsv1.LeaderWorkerSet) {
		lwstest.Policy(lwsv1.RecreateGroupOnPodRestart)(set)
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{Partition: lwstest.Ptr[int32](1)}
		set.Generation++
	})
	if _, err := c.lookAtSet(); err != nil {
		t.Fatal(err)
	}
	woken := c.woken
	for range 2 {
		if _, err := c.lookAtGroup("w-0"); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.woken - woken; got != 1 {
		t.Fatalf("the set was woken %d times", got)
	}
	c.Now = c.Now.Add(time.Minute)
	if _, err := c.lookAtSet(); err != nil {
		t.Fatal(err)
	}
	if set := lwstest.Find[*lwsv1.LeaderWorkerSet](c.FakeStore, "w"); len(set.Status.Started) != 1 {
		t.Errorf("told %+v", set.Status)
	}
}
