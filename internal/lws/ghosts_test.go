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

// leave has objects of a former life go, all but those named.
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

func TestNothingIsMadeBesideTheFormerLeaders(t *testing.T) {
	tests := []struct {
		name    string
		left    []string
		message string
	}{
		{
			"everything stands", []string{"statefulset w", "pod w-0", "pod w-1"},
			"waiting for 1 statefulset and 2 pods of the previous incarnation: statefulset w, w-0, w-1",
		},
		{"the statefulset stands", []string{"statefulset w"}, "waiting for 1 statefulset of the previous incarnation: statefulset w"},
		{"a leader stands", []string{"pod w-1"}, "waiting for 1 pod of the previous incarnation: w-1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := reborn(t, 2, 2)
			c.leave(tt.left...)
			plan := c.decideSet()
			if diff := cmp.Diff([]string{"status leaderworkerset w"}, spelled(plan)); diff != "" {
				t.Errorf("plan (-want +got)\n%s", diff)
			}
			write := one[action.WriteStatus](t, plan)
			if diff := cmp.Diff(map[string]string{progressing: "True WaitingForPreviousIncarnation: " + tt.message}, brief(write.Status)); diff != "" {
				t.Errorf("conditions (-want +got)\n%s", diff)
			}
			want := []string{"WaitingForPreviousIncarnation/Wait: " + tt.message}
			if diff := cmp.Diff(want, notes(write)); diff != "" {
				t.Errorf("events (-want +got)\n%s", diff)
			}
		})
	}
}

func TestATerminatingChildOfThisLifeIsAGhostToo(t *testing.T) {
	c := running(t, 1, 1)
	fakeapi.Terminate[*appsv1.StatefulSet](c.Server, "w", "foregroundDeletion")
	plan := c.decideSet()
	if diff := cmp.Diff([]string{"status leaderworkerset w"}, spelled(plan)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestALeaderThatIsBeingReplacedIsTheStatefulSetsBusiness(t *testing.T) {
	c := running(t, 2, 1)
	fakeapi.Terminate[*corev1.Pod](c.Server, "w-1")
	image(c, "image:2")
	c.pass(time.Minute)
	plan := c.decideSet()
	if _, waits := waitFor(plan, lws.CodePreviousIncarnation); waits || len(of[action.Apply](plan)) != 1 {
		t.Errorf("got %s, %v", spelled(plan), plan.Waits)
	}
}

func TestAFormerLeaderBeyondReplicasIsInNobodysWay(t *testing.T) {
	c := reborn(t, 2, 1)
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Spec.Replicas = fakeapi.Ptr[int32](1) })
	c.leave("pod w-1")
	if made := of[action.Create](c.decideSet()); len(made) != 3 {
		t.Errorf("got %v", made)
	}
}

func TestAPodWhoseNameOnlyReadsLikeALeadersIsInNobodysWay(t *testing.T) {
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

func TestGroupsGoOnWithoutALeaderThatLingers(t *testing.T) {
	c := reborn(t, 3, 1)
	c.leave("pod w-1")
	plan := c.decideSet()
	if made := of[action.Create](plan); len(made) != 0 {
		t.Fatalf("made while a ghost moves: %s", spelled(plan))
	}
	if wait, ok := waitFor(plan, lws.CodePreviousIncarnation); !ok || wait.Until.IsZero() {
		t.Fatalf("nobody looks again: %v", plan.Waits)
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

func TestNothingGoesOnWhenEveryNameIsTaken(t *testing.T) {
	c := reborn(t, 2, 1)
	c.leave("pod w-0", "pod w-1")
	fakeapi.Terminate[*corev1.Pod](c.Server, "w-0", "example.com/stuck")
	fakeapi.Terminate[*corev1.Pod](c.Server, "w-1", "example.com/stuck")
	c.decideSet()
	c.pass(time.Hour)
	if plan := c.decideSet(); len(of[action.Create](plan)) != 0 {
		t.Errorf("got %s", spelled(plan))
	}
}

func TestNoOrphanIsAdoptedBesideFormerLeaders(t *testing.T) {
	c := running(t, 2, 1)
	fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { sts.OwnerReferences = nil })
	fakeapi.Edit(c.Server, "w-1", func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "former" })
	plan := c.decideSet()
	for _, a := range of[action.Apply](plan) {
		if a.Adopter != nil {
			t.Errorf("adopts %s beside a ghost that still moves", a.Onto)
		}
	}
}

func TestAGhostHoldsBackItsOwnGroupOnly(t *testing.T) {
	for _, ghost := range []string{"statefulset w-0", "pod w-0-1", "service w-0"} {
		c := running(t, 2, 2, fakeapi.UniquePerReplica)
		former := fakeapi.Former(identity.KindPod, "w-0")
		disown := func(object metav1.Object) { fakeapi.OwnedBy(object, "v1", former) }
		switch ghost {
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
		if onlyService := ghost == "service w-0"; onlyService {
			if diff := cmp.Diff([]string{"create statefulset w-0"}, made); diff != "" || waits {
				t.Errorf("%s costs more than itself: waits %t, (-want +got)\n%s", ghost, waits, diff)
			}
		} else if len(made) != 0 || !waits {
			t.Errorf("%s: got %s, waits %t", ghost, made, waits)
		}
		if diff := cmp.Diff([]string{"create statefulset w-1"}, spelled(c.decideGroup("w-1"))); diff != "" {
			t.Errorf("%s: the other group (-want +got)\n%s", ghost, diff)
		}
	}
}

func TestGarbageIsHelpedAlong(t *testing.T) {
	c := reborn(t, 1, 2)
	former := fakeapi.Find[*appsv1.StatefulSet](c.Server, "w")
	c.decideSet()
	c.pass(3*time.Second - time.Nanosecond)
	early := c.decideSet()
	if deletes := of[action.Delete](early); len(deletes) != 0 {
		t.Fatalf("the collector is not given its time: %s", spelled(early))
	}
	if wait, ok := waitFor(early, lws.CodeGarbage); !ok || !wait.Until.Equal(c.Now.Add(time.Nanosecond)) {
		t.Errorf("nobody looks again in time: %v", early.Waits)
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

func TestWhatIsNoGarbageIsLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*appsv1.StatefulSet){
		"it is deleted already": func(sts *appsv1.StatefulSet) { sts.DeletionTimestamp = &metav1.Time{Time: fakeapi.Epoch} },
		"somebody orphaned it":  func(sts *appsv1.StatefulSet) { sts.Finalizers = []string{metav1.FinalizerOrphanDependents} },
		"it has a second owner": func(sts *appsv1.StatefulSet) {
			sts.OwnerReferences = append(sts.OwnerReferences, metav1.OwnerReference{Kind: "Pod", APIVersion: "v1", Name: "x", UID: "x"})
		},
		"its owner is only on leave": func(sts *appsv1.StatefulSet) {
			sts.OwnerReferences[0].Name = "going"
			sts.OwnerReferences[0].UID = "going"
		},
	} {
		c := reborn(t, 1, 1)
		c.leave("statefulset w")
		going := fakeapi.Set("going", 1, 1)
		going.UID = "going"
		fakeapi.Add(c.Server, going)
		fakeapi.Terminate[*lwsv1.LeaderWorkerSet](c.Server, "going", "foregroundDeletion")
		fakeapi.Edit(c.Server, "w", change)
		c.decideSet()
		c.pass(time.Hour)
		plan := c.decideSet()
		if made := spelled(plan); strings.Contains(strings.Join(made, ","), "delete") || strings.Contains(strings.Join(made, ","), "create") {
			t.Errorf("%s: got %s", name, made)
		}
	}
}

func TestAStuckGhostIsNamedWithWhatWouldReleaseIt(t *testing.T) {
	tests := []struct {
		name, says string
		change     func(*cluster)
	}{
		{"a finalizer", "pod w-1 is held by finalizer example.com/a, example.com/b and goes when that is removed", func(c *cluster) {
			fakeapi.Terminate[*corev1.Pod](c.Server, "w-1", "example.com/a", "example.com/b")
		}},
		{"a node", "pod w-1 goes when node node-0 confirms that it ended; if that machine is off for certain: kubectl taint node node-0 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute", func(c *cluster) {
			fakeapi.Terminate[*corev1.Pod](c.Server, "w-1")
		}},
		{"nobody deleted it", "pod w-1 goes when the garbage collector takes it", func(c *cluster) {
			fakeapi.Edit(c.Server, "w-1", func(pod *corev1.Pod) {
				pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "x", UID: "x"})
			})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := reborn(t, 2, 1)
			c.leave("pod w-1")
			tt.change(c)
			c.do(c.decideSet())
			c.pass(time.Minute - time.Second)
			if got := condition(one[action.WriteStatus](t, withoutCreations(c)).Status, progressing); strings.Contains(got.Message, "minute") {
				t.Errorf("stuck before a minute: %s", got.Message)
			}
			c.pass(time.Second)
			plan := c.decideSet()
			write := one[action.WriteStatus](t, plan)
			if got := condition(write.Status, progressing).Message; !strings.HasSuffix(got, "; none has left for a minute: "+tt.says) {
				t.Errorf("got %q", got)
			}
			event := write.Tell.Done[len(write.Tell.Done)-1]
			if !event.Warning || event.Reason != "PreviousIncarnationStuck" || !strings.Contains(event.Note, "w-1") {
				t.Errorf("got event %+v", event)
			}
			if wait, ok := waitFor(plan, lws.CodePreviousIncarnation); !ok || wait.Until.Sub(c.Now) != 30*time.Second {
				t.Errorf("got waits %v", plan.Waits)
			}
			for _, a := range of[action.Delete](plan) {
				t.Errorf("a stuck ghost is deleted: %s", a.Object)
			}
			c.do(lws.Plan{Actions: []action.Action{write}})
			c.pass(time.Minute)
			for _, again := range of[action.WriteStatus](c.decideSet()) {
				t.Errorf("it is told again: %s", condition(again.Status, progressing).Message)
			}
		})
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

func TestTheMessageCountsAndNamesAFew(t *testing.T) {
	c := reborn(t, 12, 1)
	c.leave(func() (pods []string) {
		for i := range 12 {
			pods = append(pods, fmt.Sprintf("pod w-%d", i))
		}
		return pods
	}()...)
	fakeapi.Terminate[*corev1.Pod](c.Server, "w-3")
	deleted := c.Now.Format(time.RFC3339)
	got := condition(one[action.WriteStatus](t, c.decideSet()).Status, progressing).Message
	want := "waiting for 12 pods of the previous incarnation (deleted " + deleted + "): w-0, w-1, w-2, w-3, w-4, w-5, w-6, w-7 and 4 more"
	if got != want {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}

func TestAWaitIsToldWhenItBeginsAndWhenItEnds(t *testing.T) {
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
		"WaitingForPreviousIncarnation/Wait: waiting for 3 pods of the previous incarnation: w-0, w-1, w-2",
		"GroupsProgressing/Update: Replicas are progressing, with 0 groups ready of total 3 groups",
		"PreviousIncarnationGone/Wait: the previous incarnation is gone",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAWorkerJustReplacedIsNotWorthTelling(t *testing.T) {
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

func TestNothingIsOwedToASetOnItsWayOut(t *testing.T) {
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
