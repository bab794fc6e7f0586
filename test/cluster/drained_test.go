package cluster

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// over is what a kubelet tells of a pod that it was told to end, before it lets go
// of it.
const over = `{"metadata":{"uid":%q},"status":{"phase":"Failed","containerStatuses":[{"name":"serve","image":"x","imageID":"","restartCount":0,"ready":false,"started":false,
"state":{"terminated":{"exitCode":143,"reason":"Error","finishedAt":%q}}}]}}`

// drained evicts a pod and ends it as a kubelet does: it gets its deletion timestamp,
// then it has failed, then it goes. A finalizer keeps it until then, however slow the
// drill is.
func (s *scene) drained(name string) {
	s.Helper()
	pod, ok := find[*corev1.Pod](s.recorder, name)
	if !ok {
		s.Fatalf("no pod %s to drain", name)
	}
	s.patch(pod, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, foreign))
	s.remove(pod.DeepCopy())
	s.eventually(name+" is on its way out", func() error {
		for _, rec := range s.pick(func(r *record) bool { return r.last.GetUID() == pod.UID }) {
			if rec.last.GetDeletionTimestamp() != nil {
				return nil
			}
		}
		return errStill
	})
	ended := fmt.Appendf(nil, over, pod.UID, time.Now().UTC().Format(time.RFC3339))
	s.check("invalid run: the pod was gone before it had failed",
		s.client.Status().Patch(s.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, ended)))
	s.check("let the pod go", client.IgnoreNotFound(s.client.Delete(s.Context(), pod.DeepCopy(),
		client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})))
	s.patch(pod, fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":null}}`, pod.UID))
}

// Nodes are drained one after the other, and take a leader and a worker along each
// time. Their groups come again at once, and neither is said to fail ever more often.
func TestDrainedPodsAreNotHeldAgainstTheirGroups(t *testing.T) {
	aside(t)
	s := newScene(t)
	set := s.newSet("a", 3, 2, imageA, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Annotations = map[string]string{"local.lockstep.dev/vanish-after": "4s"}
	})
	s.create(set)
	set = s.awaitSettled(set)
	for range 2 {
		for _, leader := range []string{"a-0", "a-1"} {
			s.eventually("the group is held to its start", func() error { return s.unrecorded(leader) })
		}
		before := s.uids()
		s.drained("a-0")
		s.drained("a-1-1")
		s.awaitRecreated(set, before, 0, 1)
	}
	now, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
	if len(now.Status.Restarts) != 1 {
		t.Fatalf("told of groups that did not fail: %+v", now.Status.Restarts)
	}
	r := now.Status.Restarts[0]
	if r.Index != 1 || r.Count != 0 || r.DueAt.After(r.FailedAt.Time) || len(r.Failures) != 2 {
		t.Errorf("told %+v, want two workers that were deleted, and none that failed", r)
	}
	for _, f := range r.Failures {
		same(t, "what became of a worker", lwsv1.PodFailure{Pod: "a-1-1", Reason: "PodDeleted"}, lwsv1.PodFailure{Pod: f.Pod, Reason: f.Reason})
	}
	for _, c := range now.Status.Conditions {
		if c.Type == "RestartBackOff" && c.Status == metav1.ConditionTrue {
			t.Errorf("a group waits: %s", c.Message)
		}
	}
}
