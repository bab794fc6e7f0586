package lws

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/fakeapi"
)

// Workers that lost their StatefulSet and their owner are deleted before their leader: the
// next leader's StatefulSet would adopt them. A worker that must not be deleted keeps the
// leader.
func TestALeaderStaysUntilTheWorkersThatNothingElseEndsAreDeleted(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 3, fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart)))
	c.live(20, "w-0")
	leader := fakeapi.Find[*corev1.Pod](c.Server, "w-0").UID
	fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-0")
	for _, worker := range []string{"w-0-1", "w-0-2"} {
		fakeapi.Edit(c.Server, worker, func(pod *corev1.Pod) { pod.OwnerReferences = nil })
	}
	c.api.spared = map[string]error{
		"w-0-1": apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "w-0-1", errors.New("somebody's policy denied the request")),
	}
	for range 3 {
		_, _ = c.lookAtGroup("w-0") // tells of the refusal
	}
	now := fakeapi.Find[*corev1.Pod](c.Server, "w-0")
	if now == nil || now.UID != leader || now.DeletionTimestamp != nil {
		t.Error("the leader goes, and leaves a worker behind")
	}
	if other := fakeapi.Find[*corev1.Pod](c.Server, "w-0-2"); other != nil && other.DeletionTimestamp == nil {
		t.Error("a worker waits for another one")
	}
	c.api.spared = nil
	c.live(20, "w-0")
	if now := fakeapi.Find[*corev1.Pod](c.Server, "w-0"); now == nil || now.UID == leader {
		t.Error("once nothing is refused, the group is not recreated")
	}
}
