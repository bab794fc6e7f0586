package lws_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

type PodGroup = *unstructured.Unstructured

var volcano = fakeapi.Annotation(lwsv1.GangSchedulerAnnotationKey, "volcano")

// podGroup is the PodGroup of group 0.
func podGroup(c *cluster) PodGroup {
	c.t.Helper()
	return find[PodGroup](c, gang.NameOf(find[Pod](c, "w-0")))
}

// onPodGroup edits the PodGroup of group 0.
func onPodGroup(change func(PodGroup)) step {
	return func(c *cluster) {
		edited := podGroup(c).DeepCopy()
		change(edited)
		c.Put(edited)
	}
}

func withoutPodGroup(c *cluster) { delete(c.Objects, fakeapi.NameOf(podGroup(c))) }

func formerLeaders(o PodGroup) { fakeapi.OwnedBy(o, "v1", fakeapi.Former(identity.KindPod, "w-0")) }

func minMember(c *cluster) int64 {
	n, _, _ := unstructured.NestedInt64(podGroup(c).Object, "spec", "minMember")
	return n
}

func TestDecisionsAboutPodGroups(t *testing.T) {
	size := func(set Set) { set.Spec.LeaderWorkerTemplate.Size = fakeapi.Ptr[int32](5) }
	checkDecisions(t, []decision{
		{"in step", with(2, 3, volcano), nothing, "w-0", ""},
		{"lost, of a set that has no gangs since", with(1, 2, volcano), then(withoutPodGroup,
			user(fakeapi.Annotation(lwsv1.GangSchedulerAnnotationKey, lwsv1.NoGangScheduler))), "w-0", "create podgroup w-0-5864bdfc97"},
		{"another size: a group of 3 never has 5 pods", with(1, 3, volcano), user(size), "w-0", ""},
		{"a group from before gangs", with(1, 2), user(volcano), "w-0", ""},
		{"terminating", with(1, 2, volcano), onPodGroup(func(o PodGroup) {
			o.SetDeletionTimestamp(&metav1.Time{Time: fakeapi.Epoch})
			o.SetFinalizers([]string{"x"})
		}), "w-0", "| WaitingForPreviousIncarnation"},
	})
}

func TestEveryGroupOfAGangHasAPodGroup(t *testing.T) {
	c := running(t, 2, 3, volcano)
	if all := fakeapi.All[PodGroup](c.Objects); len(all) != 2 || !metav1.IsControlledBy(podGroup(c), find[Pod](c, "w-0")) || minMember(c) != 3 {
		t.Errorf("got %v", all)
	}
	for _, pod := range fakeapi.All[Pod](c.Objects) {
		if !gang.IsTied(pod) {
			t.Errorf("pod %s is not tied to %q", pod.Name, gang.NameOf(pod))
		}
	}
	for _, waits := range []edit{fakeapi.LeaderReady, fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, "rack")} {
		if c := running(t, 1, 3, volcano, waits); minMember(c) != 1 {
			t.Errorf("minMember is %d: the leader waits for workers that wait for it", minMember(c))
		}
	}
}

// drawPodGroup changes the PodGroup of a gang in step, and reports whether it is to stay as it is.
func drawPodGroup(t *rapid.T, c *cluster) (kept bool) {
	owner := rapid.SampledFrom([]string{"leader", "former", "stranger", "none", "gone"}).Draw(t, "owner")
	if owner == "gone" {
		withoutPodGroup(c)
		return false
	}
	held := rapid.Bool().Draw(t, "terminating")
	onPodGroup(func(o PodGroup) {
		switch owner {
		case "former":
			formerLeaders(o)
		case "stranger":
			strange(c, o)
		case "none":
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
	})(c)
	return owner == "stranger" || held || (owner == "none" && len(podGroup(c).GetLabels()) == 0)
}

// A PodGroup of another controller, or a terminating one, is not written. Otherwise the group ends
// with one of its leader's own, which says what it should, and nothing is written from then on.
func TestAPodGroupIsItsLeadersOrLeftAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := running(t, 1, 2, volcano)
		kept := drawPodGroup(t, c)
		before := c.version()
		for range 6 {
			plan := c.decideGroup("w-0")
			checkPodGroupWrites(t, c, plan)
			c.do(plan)
			c.pass(10 * time.Second)
		}
		if kept {
			if after := c.version(); len(after) != len(before) || after[fakeapi.NameOf(podGroup(c))] != before[fakeapi.NameOf(podGroup(c))] {
				t.Fatalf("the PodGroup was written")
			}
			return
		}
		leader, object := find[Pod](c, "w-0"), podGroup(c)
		if !metav1.IsControlledBy(object, leader) || object.GetDeletionTimestamp() != nil || minMember(c) != 2 || !gang.IsTied(leader) || !workload.IsGang(object, leader) {
			t.Fatalf("the PodGroup does not say what the group is: %v", object)
		}
		if plan := c.decideGroup("w-0"); len(plan.Actions) > 0 {
			t.Fatalf("always more to do: %s", spelled(plan))
		}
	})
}

// checkPodGroupWrites checks that each write names the very PodGroup that exists, and that
// nothing else is written.
func checkPodGroupWrites(t *rapid.T, c *cluster, plan lws.Plan) {
	all := fakeapi.All[PodGroup](c.Objects)
	for _, a := range plan.Actions {
		_, creates := a.(action.Create)
		target := a.Target()
		if target.Kind != identity.KindPodGroup || creates && len(all) > 0 ||
			!creates && (target.UID != all[0].GetUID() || target.ResourceVersion != all[0].GetResourceVersion()) {
			t.Fatalf("%s of %+v beside %v", a.About().Verb, target, all)
		}
	}
}
