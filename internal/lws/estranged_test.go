package lws_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/lwstest"
)

// A StatefulSet lets go of a pod whose label somebody took. The pod lives on: its group
// did not fail, and its set says what to put back.
func TestAWorkerThatLostALabelDidNotFail(t *testing.T) {
	for _, key := range []string{lwsv1.SetNameLabelKey, lwsv1.GroupIndexLabelKey, lwsv1.GroupUniqueHashLabelKey} {
		t.Run(key, func(t *testing.T) {
			c := running(t, 1, 3, onRestart)
			var value string
			lwstest.Edit(c.FakeStore, "w-0-1", func(pod *corev1.Pod) {
				value = pod.Labels[key]
				delete(pod.Labels, key)
				pod.OwnerReferences = nil
			})
			lwstest.Edit(c.FakeStore, "w-0", func(sts *appsv1.StatefulSet) { sts.Status.Replicas, sts.Status.AvailableReplicas = 1, 1 })
			if found := c.decideGroup("w-0").Finding; found != nil && found.Failure != nil {
				t.Fatalf("failed: %+v", found.Failure)
			}
			plan := c.decideSet()
			told := condition(c.status(), lws.CodeNameConflict)
			for _, write := range of[action.WriteStatus](plan) {
				told = condition(write.Status, lws.CodeNameConflict)
			}
			want := "pod w-0-1 lost labels that its statefulset finds it by: group 0 lacks worker 1; " +
				"put them back (kubectl label pod w-0-1 -n ns --overwrite " + key + "=" + value + "), or delete the pod"
			if told.Status != metav1.ConditionTrue || told.Message != want {
				t.Errorf("told: %s %q\nwant %q", told.Status, told.Message, want)
			}
		})
	}
}

// What is from before its leader is not to be put back: the next one would take it for
// its own.
func TestAWorkerOfAFormerLeaderIsNotToBePutBack(t *testing.T) {
	c := running(t, 1, 3)
	lwstest.Edit(c.FakeStore, "w-0-1", func(pod *corev1.Pod) {
		delete(pod.Labels, lwsv1.GroupIndexLabelKey)
		pod.OwnerReferences, pod.CreationTimestamp = nil, metav1.NewTime(c.Now.Add(-time.Hour))
	})
	lwstest.Edit(c.FakeStore, "w-0", func(sts *appsv1.StatefulSet) { sts.Status.Replicas, sts.Status.AvailableReplicas = 1, 1 })
	write := one[action.WriteStatus](t, c.decideSet())
	want := "pod w-0-1 belongs to nobody this set knows: group 0 lacks worker 1; remove what is in the way, or give this set another name"
	if told := condition(write.Status, lws.CodeNameConflict); told.Message != want {
		t.Errorf("told: %q\nwant %q", told.Message, want)
	}
}

// What happens to it meanwhile is judged as ever.
func TestAWorkerThatLostALabelMayStillFail(t *testing.T) {
	for how, fail := range map[string]func(*cluster){
		"it restarts": func(c *cluster) { lwstest.Edit(c.FakeStore, "w-0-1", crash) },
		"it goes":     func(c *cluster) { lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0-1") },
	} {
		t.Run(how, func(t *testing.T) {
			c := running(t, 1, 3, onRestart)
			lwstest.Edit(c.FakeStore, "w-0-1", func(pod *corev1.Pod) {
				delete(pod.Labels, lwsv1.SetNameLabelKey)
				pod.OwnerReferences = nil
			})
			c.decideGroup("w-0")
			fail(c)
			c.pass(time.Minute)
			if found := c.decideGroup("w-0").Finding; found == nil || found.Failure == nil {
				t.Errorf("found %+v", found)
			}
		})
	}
}

// Nor did a group whose workers' StatefulSet lost its owner: it is adopted.
func TestWorkersThatLostTheirOwnerAreAdoptedAndDidNotFail(t *testing.T) {
	c := running(t, 1, 3, onRestart)
	lwstest.Edit(c.FakeStore, "w-0", func(sts *appsv1.StatefulSet) { sts.OwnerReferences = nil })
	plan := c.decideGroup("w-0")
	if got := spelled(plan); len(got) != 1 || got[0] != "apply statefulset w-0" || plan.Finding != nil && plan.Finding.Failure != nil {
		t.Fatalf("%v, found %+v", got, plan.Finding)
	}
	c.do(plan)
	if again := c.recreated("w-0"); len(again) != 0 {
		t.Errorf("recreated: %v", again)
	}
}

// A leader that lost the label of its group still leads it.
func TestWorkersAreLookedForUnderALeaderWithoutItsLabel(t *testing.T) {
	c := running(t, 1, 3, onRestart)
	lwstest.Edit(c.FakeStore, "w-0", func(pod *corev1.Pod) { delete(pod.Labels, lwsv1.GroupIndexLabelKey) })
	lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0-2")
	found := c.decideGroup("w-0").Finding
	if found == nil || found.Failure == nil || found.Failure.Pod != "w-0-2" {
		t.Errorf("found %+v", found)
	}
}

// A rollout goes by how many groups were wanted when its StatefulSet was last written.
func TestWhoChangesTheNumberOfGroupsThatWereWantedHasItPutBack(t *testing.T) {
	c := running(t, 3, 2)
	lwstest.Edit(c.FakeStore, "w", func(sts *appsv1.StatefulSet) { sts.Annotations[lwsv1.ReplicasAnnotationKey] = "99" })
	if got := spelled(c.decideSet()); strings.Join(got, ", ") != "apply statefulset w" {
		t.Fatalf("%v", got)
	}
	c.settleAll()
	if got := find[*appsv1.StatefulSet](c, "w").Annotations[lwsv1.ReplicasAnnotationKey]; got != "3" {
		t.Errorf("%q", got)
	}
}

// A leader whose revision label somebody took is not rolled for it. Its set says so.
func TestALeaderThatLostItsRevisionIsToldOf(t *testing.T) {
	for _, value := range []string{"", "else"} {
		c := running(t, 2, 2)
		c.pass(time.Minute)
		key := find[*appsv1.StatefulSet](c, "w").Labels[lwsv1.RevisionKey]
		lwstest.Edit(c.FakeStore, "w-1", func(pod *corev1.Pod) { pod.Labels[lwsv1.RevisionKey] = value })
		if again := c.recreated("w-0", "w-1"); len(again) != 0 {
			t.Errorf("%q: made anew: %v", value, again)
		}
		told := condition(c.status(), lws.CodeNameConflict)
		want := "pod w-1 lost the label that tells its revision: group 1 counts as outdated; " +
			"put it back (kubectl label pod w-1 -n ns --overwrite " + lwsv1.RevisionKey + "=" + key + "), or delete the pod"
		if told.Status != metav1.ConditionTrue || told.Message != want {
			t.Errorf("%q: told %s %q\nwant %q", value, told.Status, told.Message, want)
		}
		lwstest.Edit(c.FakeStore, "w-1", func(pod *corev1.Pod) { pod.Labels[lwsv1.RevisionKey] = key })
		c.settleAll()
		if told := condition(c.status(), lws.CodeNameConflict); told.Status == metav1.ConditionTrue {
			t.Errorf("%q: put back, and told %q", value, told.Message)
		}
	}
}
