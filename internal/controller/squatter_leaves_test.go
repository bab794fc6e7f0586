package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/test/lwstest"
)

// A stranger's StatefulSet under a group's name bears none of our labels, and no event
// tells that it has gone. On its way out, as by a deletion in the foreground, it was
// waited for as what an event would tell of: the group had no workers for ever.
func TestAGroupLooksAgainForAStrangerThatIsLeaving(t *testing.T) {
	c := newCluster(t, 0, lwstest.Set("w", 1, 2))
	stranger := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: lwstest.Namespace, Name: "w-0"}}
	stranger.Spec = appsv1.StatefulSetSpec{Replicas: lwstest.Ptr[int32](0), Selector: &metav1.LabelSelector{}}
	lwstest.Add(c.FakeStore, stranger)
	c.live(20, "w-0")
	lwstest.Terminate[*appsv1.StatefulSet](c.FakeStore, "w-0", metav1.FinalizerDeleteDependents)
	c.wait(10 * time.Second)
	result, err := c.lookAtGroup("w-0")
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > 10*time.Second {
		t.Fatalf("looks again in %v: %v", result.RequeueAfter, err)
	}
	lwstest.Drop[*appsv1.StatefulSet](c.FakeStore, "w-0")
	c.wait(result.RequeueAfter)
	if _, err := c.lookAtGroup("w-0"); err != nil {
		t.Fatal(err)
	}
	if sts := lwstest.Find[*appsv1.StatefulSet](c.FakeStore, "w-0"); sts == nil || len(sts.OwnerReferences) == 0 {
		t.Error("the group has no workers")
	}
}

// The same of a Service, which a load balancer may keep for minutes.
func TestAGroupLooksAgainForAStrangersServiceThatIsLeaving(t *testing.T) {
	c := newCluster(t, 0, lwstest.Set("w", 1, 2, lwstest.UniquePerReplica))
	lwstest.Add(c.FakeStore, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: lwstest.Namespace, Name: "w-0"}})
	c.live(20, "w-0")
	lwstest.Terminate[*corev1.Service](c.FakeStore, "w-0", "service.kubernetes.io/load-balancer-cleanup")
	c.wait(10 * time.Second)
	result, err := c.lookAtGroup("w-0")
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > 10*time.Second {
		t.Fatalf("looks again in %v: %v", result.RequeueAfter, err)
	}
	lwstest.Drop[*corev1.Service](c.FakeStore, "w-0")
	c.wait(result.RequeueAfter)
	if _, err := c.lookAtGroup("w-0"); err != nil {
		t.Fatal(err)
	}
	if service := lwstest.Find[*corev1.Service](c.FakeStore, "w-0"); service == nil || len(service.OwnerReferences) == 0 {
		t.Error("the group has no Service")
	}
}
