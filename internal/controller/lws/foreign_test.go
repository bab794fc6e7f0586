package lws

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// occupy replaces the named pod by a foreign one.
func (c *cluster) occupy(name string) {
	c.t.Helper()
	owner := fakeapi.Find[*corev1.Pod](c.Server, "stranger")
	if owner == nil {
		owner = fakeapi.Add(c.Server, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "stranger"}})
		fakeapi.Edit(c.Server, "stranger", fakeapi.Up)
	}
	fakeapi.Drop[*corev1.Pod](c.Server, name)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: name, Labels: map[string]string{lwsv1.SetNameLabelKey: "w"}}}
	fakeapi.OwnedBy(pod, "v1", identity.RefOf(identity.KindPod, owner))
	fakeapi.Add(c.Server, pod)
	fakeapi.Edit(c.Server, name, fakeapi.Up)
}

// recreated is a set that was deleted, waited for its previous leaders, and runs again.
func recreated(t *testing.T, slow time.Duration) *cluster {
	t.Helper()
	c := newCluster(t, slow, fakeapi.Set("w", 2, 2))
	c.run(5, "w-0", "w-1")
	fakeapi.Drop[*lwsv1.LeaderWorkerSet](c.Server, "w")
	fakeapi.Add(c.Server, fakeapi.Set("w", 2, 2))
	c.run(2, "w-0", "w-1")
	if got := c.progressing(); got.Reason != lws.CodePreviousIncarnation {
		t.Fatalf("the set does not wait for the previous incarnation: %+v", got)
	}
	for name, object := range c.Objects {
		if fakeapi.KindOf(object) != identity.KindLeaderWorkerSet {
			delete(c.Objects, name)
		}
	}
	c.Requests = nil
	c.run(10, "w-0", "w-1")
	if !c.isAvailable() {
		t.Fatalf("the next incarnation is not available: %+v", c.status())
	}
	return c
}

func (c *cluster) touches() int {
	return c.asked("apply", identity.KindStatefulSet, lws.NudgeAnnotationKey)
}

// When a foreign pod with a leader's name goes, the StatefulSet is touched once, whatever the
// operator's clock says. A recreated set is not touched.
func TestAForeignPodThatGoesTouchesTheStatefulSetOnce(t *testing.T) {
	for _, slow := range []time.Duration{0, time.Hour} {
		c := recreated(t, slow)
		if c.touches() != 0 {
			t.Errorf("%s behind: %d touches after a recreate", slow, c.touches())
		}
		c.occupy("w-1")
		c.run(20, "w-0", "w-1")
		if got := c.condition(nameConflict); got.Status != metav1.ConditionTrue || !strings.Contains(got.Message, "pod w-1 ") || !strings.Contains(got.Message, "pod stranger") || c.touches() != 0 {
			t.Errorf("%s behind: %d touches, condition %+v", slow, c.touches(), got)
		}
		fakeapi.Drop[*corev1.Pod](c.Server, "w-1")
		c.run(20, "w-0", "w-1")
		if c.touches() != 1 || !c.isAvailable() {
			t.Errorf("%s behind: %d touches, %+v", slow, c.touches(), c.status())
		}
	}
}

// No event reports a foreign object without our labels that goes: its group is read again.
func TestAGroupReadsAgainForAForeignObjectThatIsDeleted(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w-0"}
	t.Run("a StatefulSet", func(t *testing.T) {
		sts := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(0)), Selector: &metav1.LabelSelector{}}}
		checkReadAgain(t, sts, metav1.FinalizerDeleteDependents)
	})
	t.Run("a Service, which a load balancer may keep", func(t *testing.T) {
		checkReadAgain(t, &corev1.Service{ObjectMeta: meta}, "service.kubernetes.io/load-balancer-cleanup")
	})
}

func checkReadAgain[T client.Object](t *testing.T, object T, finalizer string) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 2, fakeapi.UniquePerReplica))
	fakeapi.Add(c.Server, object)
	c.run(20, "w-0")
	fakeapi.Terminate[T](c.Server, "w-0", finalizer)
	c.wait(10 * time.Second)
	result, err := c.reconcileGroup("w-0")
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > 10*time.Second {
		t.Fatalf("read again in %v: %v", result.RequeueAfter, err)
	}
	fakeapi.Drop[T](c.Server, "w-0")
	c.wait(result.RequeueAfter)
	_, err = c.reconcileGroup("w-0")
	own, exists := c.Objects[fakeapi.NameOf(object)]
	if err != nil || !exists || len(own.GetOwnerReferences()) == 0 {
		t.Errorf("the group has none of its own: %v", err)
	}
}
