package lws_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

// drawPodGroup puts the PodGroup of a gang in step into some state, and tells
// whether it is somebody's who keeps it.
func drawPodGroup(t *rapid.T, c *cluster) (kept bool) {
	leader := identity.RefOf(identity.KindPod, find[*corev1.Pod](c, "w-0"))
	owner := rapid.SampledFrom([]string{"leader", "former", "stranger", "nobody", "gone"}).Draw(t, "owner")
	if owner == "gone" {
		delete(c.Objects, fakeapi.NameOf(podGroup(c)))
		return false
	}
	held := rapid.Bool().Draw(t, "terminating")
	edit(c, func(o *unstructured.Unstructured) {
		switch owner {
		case "leader":
			fakeapi.OwnedBy(o, "v1", leader)
		case "former":
			fakeapi.OwnedBy(o, "v1", fakeapi.Former(identity.KindPod, "w-0"))
		case "stranger":
			strange(c, o)
		case "nobody":
			o.SetOwnerReferences(nil)
		}
		if rapid.Bool().Draw(t, "drifted") {
			_ = unstructured.SetNestedField(o.Object, int64(9), "spec", "minMember")
		}
		if rapid.Bool().Draw(t, "relabelled") {
			o.SetLabels(nil)
		}
		if held {
			o.SetDeletionTimestamp(&metav1.Time{Time: c.Now})
			o.SetFinalizers([]string{"held"})
		}
	})
	labels := podGroup(c).GetLabels()
	return owner == "stranger" || held || (owner == "nobody" && len(labels) == 0)
}

// Whatever state a PodGroup is found in: who keeps it keeps it untouched; else the
// group ends with one of its leader's own, which says what it should, and nothing
// is written from then on.
func TestAPodGroupIsItsLeadersOrLeftAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		tieLeaders(c)
		c.pass(time.Minute)
		fakeapi.Add(c.Server, fakeapi.Set("w", 1, 2))
		c.settle("w-0")
		kept := drawPodGroup(t, c)
		before := c.version()
		for range 6 {
			c.do(onlyPodGroups(t, c, c.decideGroup("w-0")))
			c.pass(10 * time.Second)
		}
		if kept {
			if after := c.version(); len(after) != len(before) || after[fakeapi.NameOf(podGroup(c))] != before[fakeapi.NameOf(podGroup(c))] {
				t.Fatalf("a PodGroup of somebody else's, or on its way out, was written")
			}
			return
		}
		leader, object := find[*corev1.Pod](c, "w-0"), podGroup(c)
		if !metav1.IsControlledBy(object, leader) || object.GetDeletionTimestamp() != nil {
			t.Fatalf("the PodGroup is not the leader's: %v", object)
		}
		if got, _, _ := unstructured.NestedInt64(object.Object, "spec", "minMember"); got != 2 || !gang.IsTied(leader) || !workload.IsGang(object, leader) {
			t.Fatalf("the PodGroup does not say what the group is: %v", object)
		}
		if plan := c.decideGroup("w-0"); len(plan.Actions) > 0 {
			t.Fatalf("there is always more to do: %s", spelled(plan))
		}
	})
}

// onlyPodGroups checks that each write names the very PodGroup that is there, and
// that nothing else is written.
func onlyPodGroups(t *rapid.T, c *cluster, plan lws.Plan) lws.Plan {
	there := podGroups(c)
	for _, a := range plan.Actions {
		_, creates := a.(action.Create)
		target := a.Target()
		switch {
		case target.Kind != identity.KindPodGroup:
			t.Fatalf("%s %s", a.Verb(), target)
		case creates && len(there) > 0:
			t.Fatalf("a PodGroup is made beside %s", there[0].GetUID())
		case !creates && (target.UID != there[0].GetUID() || target.ResourceVersion != there[0].GetResourceVersion()):
			t.Fatalf("%s of %+v, not of what is there", a.Verb(), target)
		}
	}
	return plan
}
