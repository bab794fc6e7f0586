package lws_test

import (
	"fmt"
	"slices"
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

// leaves deletes the leader of a group and leaves it on its way out.
func leaves(t *testing.T, c *cluster, leader string) *corev1.Pod {
	t.Helper()
	c.Remove(find[*corev1.Pod](c, leader), metav1.DeletePropagationBackground)
	going := lwstest.Find[*corev1.Pod](c.FakeStore, leader)
	if going == nil || going.DeletionTimestamp == nil {
		t.Fatal("invalid run: the leader does not leave")
	}
	return going
}

func noteOf(c *cluster) string {
	return find[*appsv1.StatefulSet](c, "w").Annotations[lws.PartingAnnotationKey]
}

// leftOf are the claims of a group that are there.
func leftOf(c *cluster, group string) []string {
	var left []string
	for name := range claimsOf(c) {
		if strings.HasPrefix(name, "data-"+group+"-") || name == "data-"+group {
			left = append(left, name)
		}
	}
	slices.Sort(left)
	return left
}

// The group that goes may be in a restart that we began, or somebody else.
func TestClaimsGoWithAGroupThatIsScaledAwayInARestart(t *testing.T) {
	eachPolicy(t, func(t *testing.T, whenDeleted, whenScaled retention) {
		for _, byUs := range []bool{true, false} {
			c := running(t, 2, 2, lwstest.Volumes(whenDeleted, whenScaled), onRestart)
			c.settleAll()
			want := claimsOf(c)
			if byUs {
				lwstest.Edit(c.FakeStore, "w-1-1", crash)
				for range 5 {
					c.do(c.decideSet())
					c.do(c.decideGroup("w-1"))
				}
			} else {
				leaves(t, c, "w-1")
			}
			if find[*corev1.Pod](c, "w-1").DeletionTimestamp == nil {
				t.Fatal("invalid run: the leader does not leave")
			}
			replicasTo(c, 1)
			c.settleAll()
			if whenScaled == deleteClaims {
				delete(want, "data-w-1")
				delete(want, "data-w-1-1")
			}
			sameClaims(t, fmt.Sprintf("by us %t", byUs), want, claimsOf(c))
			if note := noteOf(c); note != "" {
				t.Errorf("by us %t: the note stays: %s", byUs, note)
			}
		}
	})
}

// Nobody is the last leader of a group before the StatefulSet is lowered below it.
func TestNoClaimIsTiedToALeaderBeforeItsGroupIsScaledAway(t *testing.T) {
	for _, inRestart := range []bool{true, false} {
		c := running(t, 2, 2, lwstest.Volumes(retainClaims, deleteClaims))
		leader := find[*corev1.Pod](c, "w-1")
		if inRestart {
			leader = leaves(t, c, "w-1")
		}
		replicasTo(c, 1)
		plan := c.decideSet()
		if ties := of[action.Tie](plan); len(ties) > 0 {
			t.Fatalf("in a restart %t: got %v", inRestart, spelled(plan))
		}
		lowering := one[action.Apply](t, plan).Object.(*appsv1.StatefulSet)
		if note := lowering.Annotations[lws.PartingAnnotationKey]; *lowering.Spec.Replicas != 1 || note != "1="+string(leader.UID) {
			t.Errorf("in a restart %t: %d leaders, note %q", inRestart, *lowering.Spec.Replicas, note)
		}
		c.do(plan)
		tie := one[action.Tie](t, c.decideSet())
		if len(tie.Owners) != 1 || tie.Owners[0].UID != leader.UID || tie.To != nil || len(tie.Relies) != 1 {
			t.Errorf("in a restart %t: got %+v", inRestart, tie)
		}
		c.do(c.decideSet())
		c.do(c.decideSet())
		if note := noteOf(c); note != "" {
			t.Errorf("in a restart %t: the note stays: %s", inRestart, note)
		}
	}
}

// A restart that comes upon a scaling down that is refused costs nothing.
func TestClaimsOutliveRestartsWhileTheScalingDownIsRefused(t *testing.T) {
	for _, whenDeleted := range retentions {
		c := running(t, 2, 2, lwstest.Volumes(whenDeleted, deleteClaims))
		c.settleAll()
		before, first := claimsOf(c), leaderUID(c, "w-1")
		replicasTo(c, 1)
		for turn := range 20 {
			for _, plan := range []lws.Plan{c.decideSet(), c.decideGroup("w-1")} {
				for _, a := range plan.Actions {
					if a.Target().Name != "w" { // the StatefulSet and the status are refused
						c.try(a)
					}
				}
			}
			switch turn {
			case 3:
				leaves(t, c, "w-1")
			case 12:
				lwstest.Drop[*corev1.Pod](c.FakeStore, "w-1") // by force
			}
			c.others()
			c.pass(time.Second)
		}
		if leaderUID(c, "w-1") == first {
			t.Fatal("invalid run: the group was not restarted")
		}
		replicasTo(c, 2)
		c.settleAll()
		sameClaims(t, "scaled up again", before, claimsOf(c))
	}
}

// A claim that an earlier version tied to a leader is taken from it when it leaves and
// its group is still to be there.
func TestALeaderThatLeavesBeforeItsGroupIsScaledAwayTakesNoClaim(t *testing.T) {
	c := running(t, 2, 2, lwstest.Volumes(retainClaims, deleteClaims))
	before := claimsOf(c)
	lwstest.Edit(c.FakeStore, "data-w-1-1", func(claim *corev1.PersistentVolumeClaim) {
		claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(find[*corev1.Pod](c, "w-1"), corev1.SchemeGroupVersion.WithKind("Pod"))}
	})
	replicasTo(c, 1)
	leaves(t, c, "w-1")
	c.do(c.decideGroup("w-1"))
	if got := ownerOf(c, "data-w-1-1"); got != "" {
		t.Errorf("it belongs to %s", got)
	}
	replicasTo(c, 2)
	c.settleAll()
	sameClaims(t, "after the restart", before, claimsOf(c))
}

// Scaled up again before the claims are tied, they stay: the note goes with the write
// that raises the StatefulSet, and a tie decided before it is refused.
func TestScaledUpAgainInTimeTheClaimsStay(t *testing.T) {
	c := running(t, 2, 2, lwstest.Volumes(retainClaims, deleteClaims))
	before := claimsOf(c)
	leaves(t, c, "w-1")
	replicasTo(c, 1)
	c.do(c.decideSet())
	late := one[action.Tie](t, c.decideSet())
	replicasTo(c, 2)
	plan := c.decideSet()
	if ties := of[action.Tie](plan); len(ties) > 0 {
		t.Errorf("ties %v", ties)
	}
	c.do(plan)
	if note := noteOf(c); note != "" {
		t.Errorf("the note stays: %s", note)
	}
	if err := c.Do(late); err == nil {
		t.Error("a tie that comes late is carried out")
	}
	c.settleAll()
	sameClaims(t, "scaled up again", before, claimsOf(c))
}

// The operator may end between its writes, and the leader be gone when it is back.
func TestClaimsGoWithALeaderThatIsGone(t *testing.T) {
	for _, whenDeleted := range retentions {
		c := running(t, 2, 2, lwstest.Volumes(whenDeleted, deleteClaims), onRestart)
		leaves(t, c, "w-1")
		replicasTo(c, 1)
		c.do(c.decideSet())
		for range 20 {
			c.others()
		}
		if lwstest.Find[*corev1.Pod](c.FakeStore, "w-1") != nil || len(leftOf(c, "w-1")) == 0 {
			t.Fatalf("invalid run: left are %v", leftOf(c, "w-1"))
		}
		c.awake()
		c.settleAll()
		if left := leftOf(c, "w-1"); len(left) > 0 {
			t.Errorf("when deleted %s: %v stay", whenDeleted, left)
		}
		if note := noteOf(c); note != "" {
			t.Errorf("the note stays: %s", note)
		}
	}
}

// leaderless has no leader of a group there at all, and no other made.
func leaderless(t *testing.T, c *cluster, leader string) {
	t.Helper()
	lwstest.Drop[*corev1.Pod](c.FakeStore, leader)
	replicasTo(c, 1)
	for range 3 {
		c.do(c.decideSet())
		c.pass(time.Second)
	}
	if got := *find[*appsv1.StatefulSet](c, "w").Spec.Replicas; got != 2 {
		t.Fatalf("scaled down to %d without a leader that the claims could go with", got)
	}
	if wait, ok := waitFor(c.decideSet(), lws.CodeTie); !ok || wait.Until.IsZero() || !strings.Contains(wait.Sentence, "w-1") {
		t.Fatalf("does not say what it waits for: %+v", wait)
	}
}

func TestAScalingDownAwaitsALeaderThatTheClaimsGoWith(t *testing.T) {
	c := running(t, 2, 2, lwstest.Volumes(retainClaims, deleteClaims))
	leaderless(t, c, "w-1")
	c.settleAll()
	if left := leftOf(c, "w-1"); len(left) > 0 {
		t.Errorf("%v stay", left)
	}
	if got := *find[*appsv1.StatefulSet](c, "w").Spec.Replicas; got != 1 {
		t.Errorf("%d leaders wanted", got)
	}
}

// A quota may let no leader be made, and be what the scaling down is to free.
func TestAScalingDownDoesNotAwaitALeaderForEver(t *testing.T) {
	c := running(t, 2, 2, lwstest.Volumes(retainClaims, deleteClaims))
	leaderless(t, c, "w-1")
	c.pass(time.Minute)
	plan := c.decideSet()
	if lowering := one[action.Apply](t, plan).Object.(*appsv1.StatefulSet); *lowering.Spec.Replicas != 1 {
		t.Errorf("%d leaders wanted", *lowering.Spec.Replicas)
	}
	if wait, ok := waitFor(plan, lws.CodeTie); !ok || wait.Tell == nil || !strings.Contains(wait.Tell.Note, "group 1 stay behind") {
		t.Errorf("nobody is told: %+v", plan.Waits)
	}
	c.do(plan)
	if plan := c.decideSet(); len(of[action.Tie](plan)) > 0 {
		t.Errorf("got %v", spelled(plan))
	}
	if left := leftOf(c, "w-1"); len(left) == 0 {
		t.Error("claims are gone that belong to nobody")
	}
}

// A group that has no claims to go is not waited for.
func TestAScalingDownAwaitsNoLeaderWithoutClaims(t *testing.T) {
	for name, volumes := range map[string]func(*lwsv1.LeaderWorkerSet){
		"none": func(*lwsv1.LeaderWorkerSet) {}, "kept": lwstest.Volumes(deleteClaims, retainClaims),
	} {
		c := running(t, 2, 2, volumes)
		lwstest.Drop[*corev1.Pod](c.FakeStore, "w-1")
		replicasTo(c, 1)
		c.do(c.decideSet())
		if got := *find[*appsv1.StatefulSet](c, "w").Spec.Replicas; got != 1 {
			t.Errorf("%s: %d leaders wanted", name, got)
		}
	}
}

// Who refuses the ties keeps claims, and no group.
func TestARefusedTieHoldsNoScalingDownUp(t *testing.T) {
	c := running(t, 2, 2, lwstest.Volumes(retainClaims, deleteClaims))
	replicasTo(c, 1)
	for range 5 {
		for _, a := range c.decideSet().Actions {
			if _, tie := a.(action.Tie); !tie {
				c.try(a)
			}
		}
		c.others()
		c.pass(time.Second)
	}
	if got := *find[*appsv1.StatefulSet](c, "w").Spec.Replicas; got != 1 || noteOf(c) == "" {
		t.Fatalf("%d leaders wanted, note %q", got, noteOf(c))
	}
	c.settleAll()
	if left := leftOf(c, "w-1"); len(left) > 0 {
		t.Errorf("%v stay though they are refused no longer", left)
	}
}

// Annotations of the set are on its StatefulSet, too.
func TestAUsersNoteOfLastLeadersCountsForNothing(t *testing.T) {
	c := running(t, 2, 2, lwstest.Volumes(retainClaims, deleteClaims))
	lwstest.Edit(c.FakeStore, "w", lwstest.Annotation(lws.PartingAnnotationKey, "0=u,1=u"))
	c.settleAll()
	if note := noteOf(c); note != "" {
		t.Errorf("got %s", note)
	}
}

// More than one StatefulSet can note are scaled away in steps.
func TestAScalingDownGoesInStepsThatCanBeNoted(t *testing.T) {
	c := running(t, 1, 2, lwstest.Volumes(retainClaims, deleteClaims))
	world := c.set("w")
	sts := world.StatefulSet.Member().DeepCopy()
	sts.Spec.Replicas = lwstest.Ptr[int32](1101)
	world.StatefulSet.Members[0] = sts
	for index := 1; index < 1101; index++ {
		name := fmt.Sprintf("w-%d", index)
		last := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: lwstest.Namespace, Name: name}}
		last.UID = "uid-of-thirty-six-characters-or-so-x"
		g := lws.Parting{Group: lws.Group{Index: index, LeaderName: name}, Last: last}
		g.Volumes.Orphans = []*lws.Volume{lws.NewVolume(lwstest.Namespace, "data-"+name+"-1")}
		world.Leaderless = append(world.Leaderless, g)
	}
	lowering := one[action.Apply](t, lws.DecideSet(world)).Object.(*appsv1.StatefulSet)
	if note := lowering.Annotations[lws.PartingAnnotationKey]; *lowering.Spec.Replicas != 101 || len(note) > 64<<10 || !strings.HasPrefix(note, "101=") {
		t.Errorf("%d leaders wanted, a note of %d bytes: %.20s", *lowering.Spec.Replicas, len(note), note)
	}
}
