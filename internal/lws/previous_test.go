package lws_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// reborn is a set of the given groups that was just deleted and created again:
// all its former children still stand, and the former set is gone for certain.
func reborn(t *testing.T, replicas, size int32, edits ...func(*lwsv1.LeaderWorkerSet)) *cluster {
	t.Helper()
	c := running(t, replicas, size, edits...)
	c.pass(time.Minute)
	fakeapi.Drop[*lwsv1.LeaderWorkerSet](c.Server, "w")
	fakeapi.Add(c.Server, fakeapi.Set("w", replicas, size, edits...))
	return c
}

// leave has objects of a previous incarnation go, all but those named.
func (c *cluster) leave(but ...string) {
	for name, object := range c.Objects {
		stays := KindIs(object, identity.KindLeaderWorkerSet)
		for _, b := range but {
			stays = stays || b == strings.ToLower(string(name.Kind))+" "+name.Name
		}
		if !stays {
			delete(c.Objects, name)
		}
	}
}

// KindIs tells whether an object is of the kind.
func KindIs(object any, kind identity.Kind) bool { return fakeapi.KindOf(object) == kind }

func TestASetWaitsForItsPreviousLeaders(t *testing.T) {
	for name, tt := range map[string]struct {
		left  []string
		facts string
	}{
		"all":             {[]string{"statefulset w", "pod w-0", "pod w-1"}, ": 3 w w-0 w-1"},
		"the StatefulSet": {[]string{"statefulset w"}, ": 1 w"},
		"a leader":        {[]string{"pod w-1"}, ": 1 w-1"},
	} {
		c := reborn(t, 2, 2)
		c.leave(tt.left...)
		plan := c.decideSet()
		if diff := cmp.Diff([]string{"status leaderworkerset w"}, spelled(plan)); diff != "" {
			t.Errorf("%s: plan (-want +got)\n%s", name, diff)
		}
		write := one[action.WriteStatus](t, plan)
		if diff := cmp.Diff(map[string]string{progressing: "True WaitingForPreviousIncarnation" + tt.facts}, brief(write.Status)); diff != "" {
			t.Errorf("%s: conditions (-want +got)\n%s", name, diff)
		}
		if diff := cmp.Diff([]string{"WaitingForPreviousIncarnation/Wait" + tt.facts}, notes(write)); diff != "" {
			t.Errorf("%s: events (-want +got)\n%s", name, diff)
		}
	}
}

func TestASetDoesNotWaitForALeaderBeingReplaced(t *testing.T) {
	c := running(t, 2, 1)
	fakeapi.Terminate[*corev1.Pod](c.Server, "w-1")
	image(c, "image:2")
	c.pass(time.Minute)
	plan := c.decideSet()
	if _, waits := waitFor(plan, lws.CodePreviousIncarnation); waits || len(of[action.Apply](plan)) != 1 {
		t.Errorf("got %s, %v", spelled(plan), plan.Waits)
	}
}

func TestASetIgnoresPodsWithLeadingZeros(t *testing.T) {
	for _, name := range []string{"w-00", "w-007", "w-01"} {
		for _, terminating := range []bool{false, true} {
			c := newCluster(t)
			fakeapi.Add(c.Server, fakeapi.Set("w", 20, 1))
			fakeapi.Add(c.Server, fakeapi.Pod(name, "w", 1))
			if terminating {
				fakeapi.Terminate[*corev1.Pod](c.Server, name, "example.com/stuck")
			}
			plan := c.decideSet()
			if got := len(of[action.Create](plan)); got != 3 {
				t.Errorf("%s, terminating %t: got %d creations, want 3", name, terminating, got)
			}
			if conflict := condition(one[action.WriteStatus](t, plan).Status, lws.CodeNameConflict); conflict.Type != "" {
				t.Errorf("%s, terminating %t: conflict %q", name, terminating, conflict.Message)
			}
		}
	}
}

func TestOtherGroupsContinueBesideAPreviousLeader(t *testing.T) {
	c := reborn(t, 3, 1)
	c.leave("pod w-1")
	plan := c.decideSet()
	if made := of[action.Create](plan); len(made) != 0 {
		t.Fatalf("created while a previous pod leaves: %s", spelled(plan))
	}
	if wait, ok := waitFor(plan, lws.CodePreviousIncarnation); !ok || wait.Until.IsZero() {
		t.Fatalf("no requeue: %v", plan.Waits)
	}
	c.pass(3 * time.Second)
	plan = c.decideSet()
	if made := of[action.Create](plan); len(made) != 3 {
		t.Errorf("the other groups do not go on: %s", spelled(plan))
	}
	if got := condition(one[action.WriteStatus](t, plan).Status, progressing); got.Reason != lws.CodePreviousIncarnation {
		t.Errorf("the wait is not told any more: %+v", got)
	}
}

func TestAPreviousObjectHoldsItsOwnGroupOnly(t *testing.T) {
	for _, previous := range []string{"statefulset w-0", "pod w-0-1", "service w-0"} {
		c := running(t, 2, 2, fakeapi.UniquePerReplica)
		former := fakeapi.Former(identity.KindPod, "w-0")
		disown := func(object metav1.Object) { fakeapi.OwnedBy(object, "v1", former) }
		switch previous {
		case "statefulset w-0":
			fakeapi.Edit(c.Server, "w-0", func(sts *appsv1.StatefulSet) { disown(sts) })
		case "pod w-0-1":
			fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-0")
			fakeapi.Edit(c.Server, "w-0-1", func(pod *corev1.Pod) { disown(pod) })
		case "service w-0":
			fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-0")
			fakeapi.Drop[*corev1.Pod](c.Server, "w-0-1")
			fakeapi.Edit(c.Server, "w-0", func(service *corev1.Service) { disown(service) })
		}
		fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-1")
		fakeapi.Drop[*corev1.Pod](c.Server, "w-1-1")
		plan := c.decideGroup("w-0")
		made := spelled(plan)
		_, waits := waitFor(plan, lws.CodePreviousIncarnation)
		if onlyService := previous == "service w-0"; onlyService {
			if diff := cmp.Diff([]string{"create statefulset w-0"}, made); diff != "" || waits {
				t.Errorf("%s costs more than itself: waits %t, (-want +got)\n%s", previous, waits, diff)
			}
		} else if len(made) != 0 || !waits {
			t.Errorf("%s: got %s, waits %t", previous, made, waits)
		}
		if diff := cmp.Diff([]string{"create statefulset w-1"}, spelled(c.decideGroup("w-1"))); diff != "" {
			t.Errorf("%s: the other group (-want +got)\n%s", previous, diff)
		}
	}
}

func TestGarbageIsDeletedAfterThreeSeconds(t *testing.T) {
	c := reborn(t, 1, 2)
	former := fakeapi.Find[*appsv1.StatefulSet](c.Server, "w")
	c.decideSet()
	c.pass(3*time.Second - time.Nanosecond)
	early := c.decideSet()
	if deletes := of[action.Delete](early); len(deletes) != 0 {
		t.Fatalf("the collector is not given its time: %s", spelled(early))
	}
	if wait, ok := waitFor(early, lws.CodeGarbage); !ok || !wait.Until.Equal(c.Now.Add(time.Nanosecond)) {
		t.Errorf("no requeue in time: %v", early.Waits)
	}
	c.pass(time.Nanosecond)
	var helped *action.Delete
	for _, a := range of[action.Delete](c.decideSet()) {
		if a.Object.Kind == identity.KindStatefulSet {
			helped = &a
		}
	}
	if helped == nil {
		t.Fatal("the former statefulset is not deleted")
	}
	if helped.Object != identity.RefOf(identity.KindStatefulSet, former) {
		t.Errorf("deletes %+v", helped.Object)
	}
	if helped.OwnerGone == nil || helped.OwnerGone.UID != former.OwnerReferences[0].UID || helped.OwnerGone.Name != "w" {
		t.Errorf("does not make sure that the owner is gone: %+v", helped.OwnerGone)
	}
}

// A pod of the previous incarnation that does not leave is reported with what ends it.
func TestAStuckPodOfThePreviousIncarnation(t *testing.T) {
	for name, tt := range map[string]struct {
		says   []string
		change func(*cluster)
	}{
		"a finalizer": {[]string{"pod w-1", "example.com/a, example.com/b"}, func(c *cluster) {
			fakeapi.Terminate[*corev1.Pod](c.Server, "w-1", "example.com/a", "example.com/b")
		}},
		"a node": {[]string{"pod w-1", "kubectl taint node node-0 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"}, func(c *cluster) {
			fakeapi.Terminate[*corev1.Pod](c.Server, "w-1")
		}},
		"not deleted": {[]string{"pod w-1", "garbage collector"}, func(c *cluster) {
			fakeapi.Edit(c.Server, "w-1", func(pod *corev1.Pod) {
				pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "x", UID: "x"})
			})
		}},
	} {
		c := reborn(t, 2, 1)
		c.leave("pod w-1")
		tt.change(c)
		c.do(c.decideSet())
		c.pass(time.Minute - time.Second)
		if got := condition(one[action.WriteStatus](t, withoutCreations(c)).Status, progressing); strings.Contains(got.Message, "minute") {
			t.Errorf("%s: stuck before a minute: %s", name, got.Message)
		}
		c.pass(time.Second)
		plan := c.decideSet()
		write := one[action.WriteStatus](t, plan)
		for _, part := range tt.says {
			if got := condition(write.Status, progressing).Message; !strings.Contains(got, part) {
				t.Errorf("%s: %q does not say %q", name, got, part)
			}
		}
		event := write.Tell.Done[len(write.Tell.Done)-1]
		if !event.Warning || event.Reason != "PreviousIncarnationStuck" || !strings.Contains(event.Note, "w-1") {
			t.Errorf("%s: got event %+v", name, event)
		}
		if wait, ok := waitFor(plan, lws.CodePreviousIncarnation); !ok || wait.Until.Sub(c.Now) != 30*time.Second || len(of[action.Delete](plan)) > 0 {
			t.Errorf("%s: got %s, waits %v", name, spelled(plan), plan.Waits)
		}
		c.do(lws.Plan{Actions: []action.Action{write}})
		c.pass(time.Minute)
		if again := of[action.WriteStatus](c.decideSet()); len(again) > 0 {
			t.Errorf("%s: reported again: %v", name, brief(again[0].Status))
		}
	}
}

// withoutCreations is the plan of a status that differs, were nothing made.
func withoutCreations(c *cluster) lws.Plan {
	c.t.Helper()
	world := c.set("w")
	set := world.Set.DeepCopy()
	set.Status = lwsv1.LeaderWorkerSetStatus{}
	world.Set = set
	return lws.DecideSet(world)
}

func TestAWaitNamesEightPods(t *testing.T) {
	c := reborn(t, 12, 1)
	c.leave(func() (pods []string) {
		for i := range 12 {
			pods = append(pods, fmt.Sprintf("pod w-%d", i))
		}
		return pods
	}()...)
	fakeapi.Terminate[*corev1.Pod](c.Server, "w-3")
	got := condition(one[action.WriteStatus](t, c.decideSet()).Status, progressing).Message
	if found := facts(got); !strings.HasPrefix(found, ": 12 ") || !strings.HasSuffix(found, "w-0 w-1 w-2 w-3 w-4 w-5 w-6 w-7 4") {
		t.Errorf("got %q", got)
	}
}

func TestAWaitIsReportedWhenItBeginsAndEnds(t *testing.T) {
	c := reborn(t, 3, 1)
	c.leave("pod w-0", "pod w-1", "pod w-2")
	var told []string
	look := func() {
		plan := c.decideSet()
		for _, write := range of[action.WriteStatus](plan) {
			told = append(told, notes(write)...)
			c.do(lws.Plan{Actions: []action.Action{write}})
		}
		c.pass(2 * time.Second)
	}
	look()
	for i := range 3 {
		fakeapi.Drop[*corev1.Pod](c.Server, identity.LeaderName("w", i))
		look()
	}
	want := []string{
		"WaitingForPreviousIncarnation/Wait: 3 w-0 w-1 w-2", "GroupsProgressing/Update: 0 3", "PreviousIncarnationGone/Wait",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAWaitForWorkersIsReportedAfterTenSeconds(t *testing.T) {
	c := running(t, 1, 2)
	c.pass(time.Second)
	fakeapi.Edit(c.Server, "w-0", func(pod *corev1.Pod) { pod.UID = "next" })
	fakeapi.Edit(c.Server, "w-0", func(sts *appsv1.StatefulSet) { sts.DeletionTimestamp = &metav1.Time{Time: c.Now} })
	plan := c.decideSet()
	if got := condition(one[action.WriteStatus](t, plan).Status, progressing); got.Reason != "GroupsProgressing" {
		t.Errorf("told at once: %+v", got)
	}
	if wait, ok := waitFor(plan, lws.CodePreviousIncarnation); !ok || wait.Until.Sub(c.Now) != 10*time.Second {
		t.Errorf("got waits %v", plan.Waits)
	}
	c.do(plan)
	c.pass(10 * time.Second)
	if got := condition(one[action.WriteStatus](t, c.decideSet()).Status, progressing); got.Reason != lws.CodePreviousIncarnation {
		t.Errorf("not told after ten seconds: %+v", got)
	}
}

func TestATerminatingSetHasAnEmptyPlan(t *testing.T) {
	c := withoutWorkers(t)
	fakeapi.Drop[*corev1.Service](c.Server, "w")
	fakeapi.Terminate[*lwsv1.LeaderWorkerSet](c.Server, "w", "foregroundDeletion")
	if plan := c.decideSet(); len(plan.Actions)+len(plan.Waits) != 0 {
		t.Errorf("set: %s, %v", spelled(plan), plan.Waits)
	}
	if plan := c.decideGroup("w-0"); len(plan.Actions)+len(plan.Waits) != 0 {
		t.Errorf("group: %s, %v", spelled(plan), plan.Waits)
	}
}

// A pod of the set's own second was reported as gone, and ten seconds later as waited for.
func TestAPodOfTheSetsOwnSecondIsReportedAtOnce(t *testing.T) {
	set := fakeapi.Set("w", 1, 2)
	set.UID, set.Generation = "w", 1
	now := metav1.NewTime(set.CreationTimestamp.Add(2 * time.Second))
	pod := fakeapi.Pod("w-0", "w", 0)
	pod.UID, pod.CreationTimestamp, pod.DeletionTimestamp = "old", set.CreationTimestamp, &now
	plan := lws.DecideSet(lws.SetSnapshot{Now: now.Time, Set: set, Leaders: identity.Claim[*corev1.Pod]{Previous: []*corev1.Pod{pod}}})
	for _, a := range plan.Actions {
		if write, ok := a.(action.WriteStatus); ok && write.Status.Conditions[0].Reason == lws.CodePreviousIncarnation {
			return
		}
	}
	t.Errorf("nothing is reported: %+v", plan)
}
