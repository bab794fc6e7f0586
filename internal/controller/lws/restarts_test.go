package lws

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/test/fakeapi"
)

// crashed has a container of the leader restart.
func crashed(c *cluster) {
	fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "w", RestartCount: 1}}
	})
}

// One reconcile of the group decides and deletes, and wakes no set. The set finds the
// decision on the leader that terminates.
func TestAFailureIsAnsweredByOneReconcile(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 1, fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart)))
	c.live(20, "w-0")
	woken := c.woken
	crashed(c)
	if _, err := c.lookAtGroup("w-0"); err != nil || c.woken != woken {
		t.Fatalf("the set was woken %d times: %v", c.woken-woken, err)
	}
	if pod := fakeapi.Find[*corev1.Pod](c.Server, "w-0"); pod.DeletionTimestamp == nil || pod.Annotations[restart.AnnotationKey] == "" {
		t.Fatalf("the leader was not deleted, or bears no decision: %+v", pod.ObjectMeta)
	}
	c.restart()
	if _, err := c.lookAtSet(); err != nil {
		t.Fatal(err)
	}
	if told := fakeapi.Find[*lwsv1.LeaderWorkerSet](c.Server, "w").Status.Restarts; len(told) != 1 || told[0].Count != 1 {
		t.Errorf("the status says %+v", told)
	}
}

// A group that was made under None is not recreated while a partition holds it.
func TestAGroupThatWasMadeUnderNoneIsNotRecreated(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 1, fakeapi.Policy(lwsv1.NoneRestartPolicy)))
	c.live(20, "w-0")
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart)(set)
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{Partition: fakeapi.Ptr[int32](1)}
		set.Generation++
	})
	c.live(20, "w-0")
	crashed(c)
	c.live(3, "w-0")
	if pod := fakeapi.Find[*corev1.Pod](c.Server, "w-0"); pod == nil || pod.DeletionTimestamp != nil {
		t.Error("the group was recreated against its policy")
	}
}

// TestEventsOfRestarts holds which events reconcile what.
func TestEventsOfRestarts(t *testing.T) {
	pod := func(edits ...func(*corev1.Pod)) *corev1.Pod {
		leader := fakeapi.Pod("w-0", "w", 0)
		for _, edit := range edits {
			edit(leader)
		}
		return leader
	}
	set := func(leaders ...string) *lwsv1.LeaderWorkerSet {
		set := fakeapi.Set("w", 3, 2)
		for i, leader := range leaders {
			set.Status.Started = append(set.Status.Started, lwsv1.StartedGroup{Index: int32(i), Leader: types.UID(leader)})
		}
		return set
	}
	decided := func(pod *corev1.Pod) { pod.Annotations = map[string]string{restart.AnnotationKey: "x"} }
	runs := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }
	for name, tt := range map[string]struct {
		handler       handler.EventHandler
		before, after client.Object
		want          []string
	}{
		"a leader is decided":      {(*pace)(nil).restarts(), pod(), pod(decided), []string{"w"}},
		"a pod begins to run":      {(*pace)(nil).restarts(), pod(), pod(runs), []string{"w"}},
		"a pod changes":            {(*pace)(nil).restarts(), pod(runs, decided), pod(runs, decided), nil},
		"a record is new":          {recorded(), set("a"), set("a", "b"), []string{"w-1"}},
		"a record of a new leader": {recorded(), set("a", "b"), set("c", "b"), []string{"w-0"}},
		"a record stays":           {recorded(), set("a"), set("a"), nil},
	} {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		tt.handler.Update(t.Context(), event.UpdateEvent{ObjectOld: tt.before, ObjectNew: tt.after}, q)
		time.Sleep(2 * gather)
		var woken []string
		for q.Len() > 0 {
			request, _ := q.Get()
			woken = append(woken, request.Name)
		}
		if diff := cmp.Diff(tt.want, woken); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// A cache that lags has a leader deleted twice; users hear of one restart.
func TestADeleteOfWhatHasGoneIsNotTold(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 1))
	recorder := events.NewFakeRecorder(1)
	c.narrate = report.New(recorder)
	gone := action.Delete{
		Object: identity.Ref{Kind: identity.KindPod, Namespace: fakeapi.Namespace, Name: "w-0", UID: "u", ResourceVersion: "1"},
		Tell:   action.Telling{Done: []action.Event{{Reason: "RecreateGroup", Action: "Delete", Note: "gone"}}},
	}
	if err := c.do(t.Context(), c.act, fakeapi.Find[*lwsv1.LeaderWorkerSet](c.Server, "w"), gone); err != nil {
		t.Fatal(err)
	}
	if len(recorder.Events) != 0 {
		t.Errorf("told %q", <-recorder.Events)
	}
}

// A cache may be seconds late to show a deletion. The leader is not deleted again, nor
// looked at many times a second, until it does.
func TestALeaderIsDeletedOnceHoweverLateTheCacheIs(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 1, fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart)))
	c.live(20, "w-0")
	crashed(c)
	c.look("w-0")
	if pod := fakeapi.Find[*corev1.Pod](c.Server, "w-0"); pod.DeletionTimestamp == nil {
		t.Fatal("the leader was not deleted")
	}
	late := func(pod *corev1.Pod) { pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil }
	fakeapi.Edit(c.Server, "w-0", late)
	if result, err := c.lookAtGroup("w-0"); err != nil || result.RequeueAfter != 0 {
		t.Errorf("looks again after %v: %v", result.RequeueAfter, err)
	}
	if pod := fakeapi.Find[*corev1.Pod](c.Server, "w-0"); pod.DeletionTimestamp != nil {
		t.Error("the leader was deleted again")
	}
	c.wait(time.Hour) // not the cache, but the API server shows an older state
	c.look("w-0")
	if pod := fakeapi.Find[*corev1.Pod](c.Server, "w-0"); pod.DeletionTimestamp == nil {
		t.Error("the leader that stands again was not deleted")
	}
}
