package lws

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/test/fakeapi"
)

// A stranger's StatefulSet under a group's name bears none of our labels, and no event
// tells that it has gone. On its way out, as by a deletion in the foreground, it was
// waited for as what an event would tell of: the group had no workers for ever.
func TestAGroupLooksAgainForAStrangerThatIsLeaving(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 2))
	stranger := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w-0"}}
	stranger.Spec = appsv1.StatefulSetSpec{Replicas: fakeapi.Ptr[int32](0), Selector: &metav1.LabelSelector{}}
	fakeapi.Add(c.Server, stranger)
	c.live(20, "w-0")
	fakeapi.Terminate[*appsv1.StatefulSet](c.Server, "w-0", metav1.FinalizerDeleteDependents)
	c.wait(10 * time.Second)
	result, err := c.lookAtGroup("w-0")
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > 10*time.Second {
		t.Fatalf("looks again in %v: %v", result.RequeueAfter, err)
	}
	fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-0")
	c.wait(result.RequeueAfter)
	if _, err := c.lookAtGroup("w-0"); err != nil {
		t.Fatal(err)
	}
	if sts := fakeapi.Find[*appsv1.StatefulSet](c.Server, "w-0"); sts == nil || len(sts.OwnerReferences) == 0 {
		t.Error("the group has no workers")
	}
}

// The same of a Service, which a load balancer may keep for minutes.
func TestAGroupLooksAgainForAStrangersServiceThatIsLeaving(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 2, fakeapi.UniquePerReplica))
	fakeapi.Add(c.Server, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "w-0"}})
	c.live(20, "w-0")
	fakeapi.Terminate[*corev1.Service](c.Server, "w-0", "service.kubernetes.io/load-balancer-cleanup")
	c.wait(10 * time.Second)
	result, err := c.lookAtGroup("w-0")
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > 10*time.Second {
		t.Fatalf("looks again in %v: %v", result.RequeueAfter, err)
	}
	fakeapi.Drop[*corev1.Service](c.Server, "w-0")
	c.wait(result.RequeueAfter)
	if _, err := c.lookAtGroup("w-0"); err != nil {
		t.Fatal(err)
	}
	if service := fakeapi.Find[*corev1.Service](c.Server, "w-0"); service == nil || len(service.OwnerReferences) == 0 {
		t.Error("the group has no Service")
	}
}
