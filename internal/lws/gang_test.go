package lws_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
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

func minMember(c *cluster) int64 {
	n, _, _ := unstructured.NestedInt64(podGroup(c).Object, "spec", "minMember")
	return n
}

func TestDecisionsAboutPodGroups(t *testing.T) {
	size := func(set Set) { set.Spec.LeaderWorkerTemplate.Size = fakeapi.Ptr[int32](5) }
	const creates, applies, conflict = "create podgroup w-0-5864bdfc97", "apply podgroup w-0-5864bdfc97", "| NameConflict"
	gangs := with(1, 2, volcano)
	drift := func(o PodGroup) { _ = unstructured.SetNestedField(o.Object, int64(9), "spec", "minMember") }
	orphan := func(o PodGroup) { o.SetOwnerReferences(nil) }
	checkDecisions(t, []decision{
		{"in step", with(2, 3, volcano), nothing, "w-0", ""},
		{"lost, of a set that has no gangs since", with(1, 2, volcano), then(withoutPodGroup,
			user(fakeapi.Annotation(lwsv1.GangSchedulerAnnotationKey, lwsv1.NoGangScheduler))), "w-0", creates},
		{"another size: a group of 3 never has 5 pods", with(1, 3, volcano), user(size), "w-0", ""},
		{"a group from before gangs", with(1, 2), user(volcano), "w-0", ""},
		{"lost", gangs, withoutPodGroup, "w-0", creates},
		{"of a former leader", gangs, onPodGroup(func(o PodGroup) { fakeapi.OwnedBy(o, "v1", fakeapi.Former(identity.KindPod, "w-0")) }), "w-0", "| Garbage WaitingForPreviousIncarnation"},
		{"of a stranger", gangs, func(c *cluster) { onPodGroup(func(o PodGroup) { strange(c, o); drift(o) })(c) }, "w-0", conflict},
		{"orphaned", gangs, onPodGroup(orphan), "w-0", applies},
		{"of nobody", gangs, onPodGroup(func(o PodGroup) { orphan(o); o.SetLabels(nil) }), "w-0", conflict},
		{"of another size", gangs, onPodGroup(drift), "w-0", applies},
		{"without labels", gangs, onPodGroup(func(o PodGroup) { o.SetLabels(nil) }), "w-0", applies},
		{"terminating", gangs, onPodGroup(func(o PodGroup) {
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
