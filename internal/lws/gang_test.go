package lws_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// tieLeaders has new leaders handed to Volcano, as the pod webhook does. Workers
// have to be tied by their template.
func tieLeaders(c *cluster) {
	c.Added = func(object client.Object) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" {
			gang.Tie(pod, gang.NameOf(pod))
		}
	}
}

// gangs is a cluster with a set called w in step whose groups are gangs.
func gangs(t *testing.T, replicas, size int32, edits ...func(*lwsv1.LeaderWorkerSet)) *cluster {
	t.Helper()
	c := newCluster(t)
	tieLeaders(c)
	c.pass(time.Minute)
	fakeapi.Add(c.Server, fakeapi.Set("w", replicas, size, edits...))
	c.settle("w-0", "w-1")
	return c
}

func podGroups(c *cluster) []*unstructured.Unstructured {
	return fakeapi.All[*unstructured.Unstructured](c.Objects)
}

// podGroup is the one of group 0.
func podGroup(c *cluster) *unstructured.Unstructured {
	c.t.Helper()
	leader := find[*corev1.Pod](c, "w-0")
	return find[*unstructured.Unstructured](c, gang.NameOf(leader))
}

func edit(c *cluster, change func(*unstructured.Unstructured)) {
	edited := podGroup(c).DeepCopy()
	change(edited)
	c.Put(edited)
}

func TestEveryGroupOfAGangHasAPodGroupOfItsLeader(t *testing.T) {
	c := gangs(t, 2, 3)
	if got := len(podGroups(c)); got != 2 {
		t.Fatalf("got %d PodGroups, want 2", got)
	}
	leader, object := find[*corev1.Pod](c, "w-0"), podGroup(c)
	if owner := metav1.GetControllerOf(object); owner == nil || owner.UID != leader.UID {
		t.Errorf("the PodGroup belongs to %+v, want leader %s", owner, leader.UID)
	}
	if got, _, _ := unstructured.NestedInt64(object.Object, "spec", "minMember"); got != 3 {
		t.Errorf("minMember is %d, want 3", got)
	}
	for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
		if !gang.IsTied(pod) {
			t.Errorf("pod %s is not tied to %q", pod.Name, gang.NameOf(pod))
		}
	}
	if plan := c.decideGroup("w-0"); len(plan.Actions) > 0 {
		t.Errorf("a gang in step is written: %s", spelled(plan))
	}
}

func TestWorkersThatWaitForTheirLeaderAreNotWaitedForByIt(t *testing.T) {
	for name, waits := range map[string]func(*lwsv1.LeaderWorkerSet){
		"for it to be ready":     fakeapi.LeaderReady,
		"for it to be scheduled": fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, "rack"),
	} {
		c := gangs(t, 1, 3, waits)
		if got, _, _ := unstructured.NestedInt64(podGroup(c).Object, "spec", "minMember"); got != 1 {
			t.Errorf("%s: minMember is %d, want 1: the leader would wait for workers that wait for it", name, got)
		}
	}
}

func TestAGroupOfAnOlderRevisionKeepsItsOwnSize(t *testing.T) {
	c := gangs(t, 1, 3)
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.Size = fakeapi.Ptr[int32](5)
		set.Generation++
	})
	if plan := c.decideGroup("w-0"); len(plan.Actions) > 0 {
		t.Errorf("got %s: a group of 3 would wait for 5 pods for ever", spelled(plan))
	}
}

func TestWhatIsTakenFromTheSetIsTakenFromItsPodGroups(t *testing.T) {
	queue, annotation := fakeapi.Annotation(lwsv1.QueueNameAnnotationKey, "q"), fakeapi.Annotation("volcano.sh/x", "1")
	c := gangs(t, 1, 2, queue, annotation)
	if got, _, _ := unstructured.NestedString(podGroup(c).Object, "spec", "queue"); got != "q" {
		t.Fatalf("the queue is %q", got)
	}
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Annotations = nil })
	c.do(c.decideGroup("w-0"))
	if got, there, _ := unstructured.NestedString(podGroup(c).Object, "spec", "queue"); there {
		t.Errorf("the queue is still %q", got)
	}
	if got := podGroup(c).GetAnnotations(); len(got) > 0 {
		t.Errorf("the annotations are still %v", got)
	}
	if plan := c.decideGroup("w-0"); len(plan.Actions) > 0 {
		t.Errorf("written twice: %s", spelled(plan))
	}
}

func TestThePodGroupOfAFormerLeaderIsAGhost(t *testing.T) {
	c := gangs(t, 1, 2)
	edit(c, func(o *unstructured.Unstructured) { fakeapi.OwnedBy(o, "v1", fakeapi.Former(identity.KindPod, "w-0")) })
	plan := c.decideGroup("w-0")
	if len(plan.Actions) > 0 {
		t.Errorf("got %s beside a ghost", spelled(plan))
	}
	if _, waits := waitFor(plan, lws.CodePreviousIncarnation); !waits {
		t.Error("nobody waits for the ghost")
	}
	c.pass(time.Minute)
	if got := one[action.Delete](t, c.decideGroup("w-0")); got.Object.UID != podGroup(c).GetUID() || got.OwnerGone == nil {
		t.Errorf("garbage is not helped along: %+v", got)
	}
	c.do(c.decideGroup("w-0"))
	c.do(c.decideGroup("w-0"))
	if owner := metav1.GetControllerOf(podGroup(c)); owner.UID != find[*corev1.Pod](c, "w-0").UID {
		t.Errorf("the new PodGroup belongs to %s", owner.UID)
	}
}

func TestAPodGroupOnItsWayOutIsWaitedFor(t *testing.T) {
	c := gangs(t, 1, 2)
	edit(c, func(o *unstructured.Unstructured) {
		o.SetDeletionTimestamp(&metav1.Time{Time: c.Now})
		o.SetFinalizers([]string{"x"})
	})
	if plan := c.decideGroup("w-0"); len(plan.Actions) > 0 {
		t.Errorf("got %s", spelled(plan))
	}
	c.decideSet()
	c.pass(time.Minute)
	write := one[action.WriteStatus](t, c.decideSet())
	if got := condition(write.Status, progressing).Message; !strings.Contains(got, "podgroup w-0-") {
		t.Errorf("got %q", got)
	}
}

func TestAGroupFromBeforeGangsIsLeftAlone(t *testing.T) {
	c := running(t, 1, 2)
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		fakeapi.Annotation(lwsv1.GangSchedulerAnnotationKey, "volcano")(set)
	})
	plan := c.decideGroup("w-0")
	if len(plan.Actions) > 0 {
		t.Errorf("got %s", spelled(plan))
	}
	if _, told := waitFor(plan, lws.CodeNoGangYet); !told {
		t.Errorf("nobody is told why: %+v", plan.Waits)
	}
}

func TestAGroupThatWasMadeAsAGangStaysOne(t *testing.T) {
	c := gangs(t, 1, 2, fakeapi.Annotation(lwsv1.GangSchedulerAnnotationKey, "volcano"))
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		set.Annotations[lwsv1.GangSchedulerAnnotationKey] = lwsv1.NoGangScheduler
	})
	delete(c.Objects, fakeapi.NameOf(podGroup(c)))
	one[action.Create](t, c.decideGroup("w-0"))
}
