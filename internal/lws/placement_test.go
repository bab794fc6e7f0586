package lws_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

// place changes an annotation of a set called w.
func place(c *cluster, key, topology string) {
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		delete(set.Annotations, key)
		if topology != "" {
			fakeapi.Annotation(key, topology)(set)
		}
	})
}

// placesItself is a set with a placement that somebody wrote into the template instead.
func placesItself(key string) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Annotations = map[string]string{key: "rack"}
		rollingOf(set).MaxSurge = intstr.FromInt32(1)
	}
}

// TestATemplateThatPlacesItselfIsNoNewPlacement: it is part of the revision, and nothing
// of it is new.
func TestATemplateThatPlacesItselfIsNoNewPlacement(t *testing.T) {
	for _, key := range []string{lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey} {
		c := running(t, 3, 1, placesItself(key))
		c.settleAll()
		sts := find[*appsv1.StatefulSet](c, "w")
		if from := *sts.Spec.UpdateStrategy.RollingUpdate.Partition; workload.PodsOf(sts) != 3 || from != 0 {
			t.Errorf("%s: at rest %d leaders, replaced from %d on", key, workload.PodsOf(sts), from)
		}
		fakeapi.Edit(c.Server, "w", fakeapi.Image("new"))
		c.settleAll()
		for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
			if pod.Spec.Containers[0].Image != "new" || pod.Annotations[key] != "rack" {
				t.Errorf("%s: %s has %s and is placed by %v", key, pod.Name, pod.Spec.Containers[0].Image, pod.Annotations)
			}
		}
		if status := c.status(); status.UpdatedReplicas != 3 || status.Replicas != 3 {
			t.Errorf("%s: got %+v", key, status)
		}
	}
}

func TestATemplateThatPlacesItselfIsNotHeldByAPause(t *testing.T) {
	for _, key := range []string{lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey} {
		c := running(t, 3, 1, placesItself(key), fakeapi.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue))
		c.settleAll()
		if waits := c.decideSet().Waits; len(waits) > 0 {
			t.Errorf("%s: waits at rest: %+v", key, waits)
		}
	}
}

// TestANewPlacementIsToldAsAnUpdate: from the first look on, whether or not the
// StatefulSet controller has seen it. Who waits for the rollout would else be told at
// once that it is done.
func TestANewPlacementIsToldAsAnUpdate(t *testing.T) {
	c := running(t, 2, 1)
	place(c, lwsv1.ExclusiveKeyAnnotationKey, "rack")
	told := func(when string) {
		t.Helper()
		if stands := lws.Stand(c.set("w")); stands.TargetUpdated != 0 {
			t.Errorf("%s: %d of 2 groups are updated", when, stands.TargetUpdated)
		}
		c.do(c.decideSet())
		if got := condition(c.status(), updating); got.Status != "True" || c.status().UpdatedReplicas != 0 {
			t.Errorf("%s: got %+v", when, c.status())
		}
	}
	told("before it is written")
	told("before it was seen")
	for _, sts := range fakeapi.All[*appsv1.StatefulSet](c.Objects) {
		c.Sync(sts)
	}
	told("once it was seen")
}

// TestWorkersGoWhereTheirLeaderWasSent: not where the set would send another one.
func TestWorkersGoWhereTheirLeaderWasSent(t *testing.T) {
	c := running(t, 1, 2)
	node := &corev1.Node{}
	node.Name, node.Labels = fakeapi.Node, map[string]string{"rack": "r1", "zone": "z1"}
	fakeapi.Add(c.Server, node)
	fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) { pod.Annotations[lwsv1.ExclusiveKeyAnnotationKey] = "rack" })
	place(c, lwsv1.ExclusiveKeyAnnotationKey, "zone")
	fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-0")
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0-1")
	w := c.group("w-0")
	w.Node = &lws.Node{Name: fakeapi.Node, Labels: node.Labels}
	made := one[action.Create](t, lws.DecideGroup(w)).Object.(*appsv1.StatefulSet)
	if got := made.Spec.Template.Spec.NodeSelector; len(got) != 1 || got["rack"] != "r1" {
		t.Errorf("got node selector %v", got)
	}
	if got := made.Spec.Template.Annotations[lwsv1.ExclusiveKeyAnnotationKey]; got != "rack" {
		t.Errorf("got annotation %q", got)
	}
}

// What somebody wrote into the leaders' template places leaders alone, as it did under
// another implementation: their workers may run where there is no room beside them.
func TestWorkersDoNotFollowALeaderWhoseTemplatePlacesIt(t *testing.T) {
	for _, key := range []string{lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey} {
		for _, paused := range []bool{false, true} {
			c := running(t, 1, 2, fakeapi.Leader("image:1"), func(set *lwsv1.LeaderWorkerSet) {
				set.Spec.LeaderWorkerTemplate.LeaderTemplate.Annotations = map[string]string{key: "rack"}
				if paused {
					fakeapi.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue)(set)
				}
			})
			if got := find[*corev1.Pod](c, "w-0").Annotations[key]; got != "rack" {
				t.Fatalf("invalid run: the leader is placed by %q", got)
			}
			template := find[*appsv1.StatefulSet](c, "w-0").Spec.Template
			if got := template.Annotations[key]; got != "" || len(template.Spec.NodeSelector) > 0 {
				t.Errorf("%s, paused %t: workers are placed by %q, %v", key, paused, got, template.Spec.NodeSelector)
			}
		}
	}
}

// A topology is added, and a group from before it comes anew at its own revision: its
// leader may stand where the label is not, and the rollout waits for its workers.
func TestWorkersOfAGroupFromBeforeATopologyGoByTheirLeader(t *testing.T) {
	for _, key := range []string{lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey} {
		c := running(t, 2, 3, func(set *lwsv1.LeaderWorkerSet) {
			rollingOf(set).Partition = fakeapi.Ptr[int32](1)
			set.Spec.LeaderWorkerTemplate.SubGroupPolicy = &lwsv1.SubGroupPolicy{SubGroupSize: fakeapi.Ptr[int32](1)}
		})
		place(c, key, "rack")
		c.settleAll()
		c.Remove(find[*corev1.Pod](c, "w-0"), metav1.DeletePropagationBackground)
		c.settleAll()
		if leader := find[*corev1.Pod](c, "w-0"); leader.Annotations[key] != "" {
			t.Fatalf("invalid run: leader is placed by %v", leader.Annotations)
		}
		workers := fakeapi.Find[*appsv1.StatefulSet](c.Server, "w-0")
		if workers == nil {
			t.Fatalf("%s: no workers: %+v", key, c.decideGroup("w-0").Waits)
		}
		if template := workers.Spec.Template; template.Annotations[key] != "" || len(template.Spec.NodeSelector) > 0 {
			t.Errorf("%s: workers are placed by %v, %v", key, template.Annotations, template.Spec.NodeSelector)
		}
		if got := find[*corev1.Pod](c, "w-1").Annotations[key]; got != "rack" {
			t.Errorf("%s: the group that is rolled has %q", key, got)
		}
	}
}

func TestALeaderThatNoNodeCanTakeIsToldOnTheSet(t *testing.T) {
	c := running(t, 1, 2, fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, "rack"))
	fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) { pod.Spec.NodeName = "" })
	wait, _ := waitFor(c.decideGroup("w-0"), lws.CodeLeaderNotScheduled)
	if wait.Code == "" || wait.Tell != nil {
		t.Errorf("not scheduled yet: got %+v", wait)
	}
	fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	})
	wait, _ = waitFor(c.decideGroup("w-0"), lws.CodeLeaderNotScheduled)
	if wait.Tell == nil || !wait.Tell.Warning || !strings.Contains(wait.Tell.Note, "label rack") {
		t.Errorf("got %+v", wait)
	}
}
