package cluster

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/restart"
)

// over is the status that a kubelet writes of a deleted pod before the pod goes.
const over = `{"metadata":{"uid":%q},"status":{"phase":"Failed","containerStatuses":[{"name":"serve","image":"x","imageID":"","restartCount":0,"ready":false,"started":false,
"state":{"terminated":{"exitCode":143,"reason":"Error","finishedAt":%q}}}]}}`

// drained evicts a pod through the API, which sets the condition DisruptionTarget, and ends
// it as a kubelet does: the pod has a deletion timestamp, then fails, then goes. A finalizer
// keeps it until the operator has written its decision onto the leader.
func (s *scene) drained(name, leader string) {
	s.Helper()
	pod, ok := find[*corev1.Pod](s.recorder, name)
	if !ok {
		s.Fatalf("no pod %s to drain", name)
	}
	decided, _ := find[*corev1.Pod](s.recorder, leader)
	s.patch(pod, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, foreign))
	s.check("evict "+name, s.client.SubResource("eviction").Create(s.Context(), pod.DeepCopy(),
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}))
	s.eventually("the decision is on leader "+leader, func() error {
		has := func(r *record) bool {
			return r.last.GetUID() == decided.UID && r.last.GetAnnotations()[restart.AnnotationKey] != ""
		}
		return lacking("pods with a decision", 1, len(s.pick(has)))
	})
	ended := fmt.Sprintf(over, pod.UID, time.Now().UTC().Format(time.RFC3339))
	s.check("invalid run: the pod was gone before it had failed",
		s.client.Status().Patch(s.Context(), pod.DeepCopy(), merge(ended)))
	s.check("let the pod go", client.IgnoreNotFound(s.client.Delete(s.Context(), pod.DeepCopy(),
		client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})))
	s.patch(pod, fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":null}}`, pod.UID))
}

// Nodes are drained one after the other, and each drain evicts a leader and a worker. Their
// groups are recreated at once, and neither failure counts for the back-off.
func TestDrainedPodsDoNotCount(t *testing.T) {
	s := asideScene(t)
	set := s.settled(s.newSet("a", 3, 2, imageA, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Annotations = map[string]string{"local.lockstep.dev/vanish-after": "4s"}
	}))
	for range 2 {
		for _, leader := range []string{"a-0", "a-1"} {
			s.eventually("the group is recorded", func() error { return s.unrecorded(leader) })
		}
		before := s.uids()
		s.drained("a-0", "a-0")
		s.drained("a-1-1", "a-1")
		s.awaitRecreated(set, before, 0, 1)
	}
	now, _ := find[*lwsv1.LeaderWorkerSet](s.recorder, "a")
	same(t, "groups in the status", 2, len(now.Status.Restarts))
	for i, r := range now.Status.Restarts {
		if r.Count != 0 || r.DueAt.After(r.FailedAt.Time) || len(r.Failures) != 2 {
			t.Errorf("status of group %d: %+v, want two failures that do not count", i, r)
		}
		for _, f := range r.Failures {
			same(t, "evidence", lwsv1.PodFailure{Pod: []string{"a-0", "a-1-1"}[i], Reason: "PodDeleted"}, lwsv1.PodFailure{Pod: f.Pod, Reason: f.Reason})
		}
	}
	for _, c := range now.Status.Conditions {
		if c.Type == "RestartBackOff" && c.Status == metav1.ConditionTrue {
			t.Errorf("a group waits: %s", c.Message)
		}
	}
}
