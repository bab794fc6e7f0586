package lws_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// rival is a revision with the given image under the key of the groups of c, without a
// controller. Its name has the hash of its own data.
func rival(t *testing.T, c *cluster, image string, number int64) *appsv1.ControllerRevision {
	t.Helper()
	other := find[*lwsv1.LeaderWorkerSet](c, "w").DeepCopy()
	fakeapi.Image(image)(other)
	encoded := data(t, other)
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fakeapi.Namespace, Name: "w-" + lws.RevisionKey(encoded) + "-99",
			Labels: map[string]string{
				lwsv1.SetNameLabelKey: "w",
				lwsv1.RevisionKey:     find[*appsv1.StatefulSet](c, "w").Labels[lwsv1.RevisionKey],
			},
		},
		Revision: number,
		Data:     runtime.RawExtension{Raw: encoded},
	}
}

// workersImage is what the workers that a group's plan makes would run.
func workersImage(t *testing.T, plan lws.Plan) string {
	t.Helper()
	sts, _ := created[*appsv1.StatefulSet](t, plan)
	return sts.Spec.Template.Spec.Containers[0].Image
}

// A user who may create ControllerRevisions must not choose the template of a set. One with the
// set as its controller precedes none whose data hashes to the key.
func TestAForgedRevisionUnderTheCurrentKeyIsNotUsed(t *testing.T) {
	for _, isControlled := range []bool{true, false} {
		c := withoutWorkers(t)
		forged := rival(t, c, "forged", 99)
		if isControlled {
			forged.OwnerReferences = revisions(c)[0].OwnerReferences
		}
		genuine := revisions(c)[0].Name
		fakeapi.Add(c.Server, forged)
		if plan := c.decideSet(); len(of[action.Apply](plan))+len(of[action.Create](plan)) != 0 {
			t.Errorf("controlled %t: the set does %s", isControlled, spelled(plan))
		}
		if got := workersImage(t, c.decideGroup("w-0")); got != "image:1" {
			t.Errorf("controlled %t: workers are made of %s", isControlled, got)
		}
		if isControlled {
			continue
		}
		image(c, "forged")
		if got, _ := created[*appsv1.ControllerRevision](t, c.decideSet()); got.Revision != 2 {
			t.Errorf("the forged revision moved the number to %d", got.Revision)
		}
		fakeapi.Drop[*appsv1.ControllerRevision](c.Server, genuine)
		plan := c.decideGroup("w-0")
		if _, waits := waitFor(plan, lws.CodeRevisionNotVisible); !waits || len(plan.Actions) != 0 {
			t.Errorf("without the genuine revision the group does %s", spelled(plan))
		}
	}
}

// Another implementation created the revision again under the key that the groups run. A
// takeover restarts no group for that.
func TestARevisionCreatedAgainUnderALostKeyIsUsed(t *testing.T) {
	c := withoutWorkers(t)
	again := rival(t, c, "image:2", 99)
	again.OwnerReferences = revisions(c)[0].OwnerReferences
	genuine := revisions(c)[0].Name
	fakeapi.Add(c.Server, again)
	fakeapi.Drop[*appsv1.ControllerRevision](c.Server, genuine)
	if got := workersImage(t, c.decideGroup("w-0")); got != "image:2" {
		t.Errorf("workers are made of %s", got)
	}
}
