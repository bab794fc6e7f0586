package lws_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// rival is a revision that says image, under the key that the groups of c are at
// and with its own data's hash in its name. Nobody owns it.
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

// A revision made again under a lost key outlived the return of the real one, and
// workers came up with another template than their leader's.
func TestTheRevisionWhoseDataIsTheKeyGoesBeforeOneMadeAgainUnderIt(t *testing.T) {
	c := withoutWorkers(t)
	again := rival(t, c, "image:2", 99)
	again.OwnerReferences = revisions(c)[0].OwnerReferences
	again = fakeapi.Add(c.Server, again)
	if got := workersImage(t, c.decideGroup("w-0")); got != "image:1" {
		t.Errorf("workers are made of %s", got)
	}
	group := c.group("w-0")
	slices.Reverse(group.Revisions.Members)
	if got := workersImage(t, lws.DecideGroup(group)); got != "image:1" {
		t.Errorf("in the other order, workers are made of %s", got)
	}
	group.Revisions.Members = []*appsv1.ControllerRevision{again}
	if got := workersImage(t, lws.DecideGroup(group)); got != "image:2" {
		t.Errorf("alone, the one made again gives %s", got)
	}
}

// Two revisions with one number took turns at being the latest: caches list in
// any order, and workers of one group came up with either template.
func TestEqualNumbersDoNotDependOnTheOrderOfTheList(t *testing.T) {
	c := withoutWorkers(t)
	owners := revisions(c)[0].OwnerReferences
	var pair []*appsv1.ControllerRevision
	for _, image := range []string{"image:2", "image:3"} {
		revision := rival(t, c, image, 99)
		revision.OwnerReferences = owners
		pair = append(pair, fakeapi.Add(c.Server, revision))
	}
	group := c.group("w-0")
	var got []string
	for range 2 {
		slices.Reverse(pair)
		group.Revisions.Members = pair
		got = append(got, workersImage(t, lws.DecideGroup(group)))
	}
	if diff := cmp.Diff(got[0], got[1]); diff != "" {
		t.Errorf("(-one order +the other)\n%s", diff)
	}
}
