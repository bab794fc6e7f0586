package lws

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A webhook that rewrites templates must not cause an apply at every reconcile.
func TestWhatAWebhookMakesOfAnApplyIsAcceptedAsItIs(t *testing.T) {
	rewrite := func(sts *appsv1.StatefulSet) {
		container := &sts.Spec.Template.Spec.Containers[0]
		container.Image = "mirror/" + container.Image
		container.Env = []corev1.EnvVar{{Name: "INJECTED", Value: "1"}}
	}
	c := newCluster(t, 0, fakeapi.Set("w", 1, 1))
	c.api.Webhook = func(object client.Object) {
		if sts, ok := object.(*appsv1.StatefulSet); ok {
			rewrite(sts)
		}
	}
	c.live(5, "w-0")
	if created := len(c.api.applied); created > 1 { // a create records no generation
		t.Fatalf("applied %d times onto a new StatefulSet", created)
	}
	c.api.applied = nil
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Generation++; set.Spec.Replicas = fakeapi.Ptr[int32](2) })
	c.live(5, "w-0", "w-1")
	if len(c.api.applied) != 1 {
		t.Errorf("one change was applied %d times", len(c.api.applied))
	}
}

// Somebody put another StatefulSet in the place of the leaders', and the operator
// took it for what it had applied last: its pods ran another image for good.
func TestANamesakeOfWhatWasAppliedIsPutRight(t *testing.T) {
	c := newCluster(t, 0, fakeapi.Set("w", 1, 1))
	c.live(5, "w-0")
	namesake := fakeapi.Find[*appsv1.StatefulSet](c.Server, "w").DeepCopy()
	namesake.UID = ""
	namesake.Spec.Template.Spec.Containers[0].Image = "other"
	fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w")
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0")
	fakeapi.Add(c.Server, namesake)
	if _, err := c.lookAtSet(); err != nil {
		t.Fatal(err)
	}
	got := fakeapi.Find[*appsv1.StatefulSet](c.Server, "w").Spec.Template.Spec.Containers[0].Image
	if got != "image:1" {
		t.Errorf("the leaders run %s", got)
	}
}
