package lws_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/fakeapi"
)

type retention = appsv1.PersistentVolumeClaimRetentionPolicyType

var retentions = []retention{retainClaims, deleteClaims}

// eachPolicy runs a test under every retention policy.
func eachPolicy(t *testing.T, test func(t *testing.T, whenDeleted, whenScaled retention)) {
	for _, whenDeleted := range retentions {
		for _, whenScaled := range retentions {
			t.Run("when deleted "+string(whenDeleted)+", when scaled "+string(whenScaled), func(t *testing.T) { test(t, whenDeleted, whenScaled) })
		}
	}
}

// ownerOf is who controls a claim: "LeaderWorkerSet w", or "".
func ownerOf(c *cluster, claim string) string {
	owner := metav1.GetControllerOf(find[*corev1.PersistentVolumeClaim](c, claim))
	if owner == nil {
		return ""
	}
	return owner.Kind + " " + owner.Name
}

func TestClaimsOfWorkersBelongToTheSetWhenTheyEndWithIt(t *testing.T) {
	for whenDeleted, want := range map[retention]string{retainClaims: "", deleteClaims: "LeaderWorkerSet w"} {
		c := running(t, 2, 3, fakeapi.Volumes(whenDeleted, retainClaims))
		for _, claim := range []string{"data-w-0-1", "data-w-1-2"} {
			if got := ownerOf(c, claim); got != want {
				t.Errorf("when deleted %s: %s belongs to %q, want %q", whenDeleted, claim, got, want)
			}
		}
	}
}

func TestScalingDownDoesWhatThePolicySays(t *testing.T) {
	eachPolicy(t, func(t *testing.T, whenDeleted, whenScaled retention) {
		c := running(t, 3, 3, fakeapi.Volumes(whenDeleted, whenScaled))
		want := claimsOf(c)
		replicasTo(c, 1)
		c.settleAll()
		if whenScaled == deleteClaims {
			maps.DeleteFunc(want, func(name string, _ types.UID) bool { return !strings.Contains(name, "w-0") })
		}
		sameClaims(t, "after scaling down", want, claimsOf(c))
		replicasTo(c, 3)
		c.settleAll()
		if whenScaled == retainClaims {
			sameClaims(t, "scaled up again", want, claimsOf(c))
		}
		if ready := c.status().ReadyReplicas; ready != 3 {
			t.Errorf("scaled up again: %d groups ready", ready)
		}
	})
}

func TestDeletingTheSetDoesWhatThePolicySaysWithoutTheOperator(t *testing.T) {
	eachPolicy(t, func(t *testing.T, whenDeleted, whenScaled retention) {
		c := running(t, 2, 3, fakeapi.Volumes(whenDeleted, whenScaled))
		want := claimsOf(c)
		fakeapi.Drop[*lwsv1.LeaderWorkerSet](c.Server, "w")
		for range 20 {
			c.others()
		}
		if whenDeleted == deleteClaims {
			clear(want)
		}
		sameClaims(t, "after the set", want, claimsOf(c))
	})
}

func TestOrphaningLeavesTheClaims(t *testing.T) {
	c := running(t, 1, 3, fakeapi.Volumes(deleteClaims, deleteClaims))
	want := claimsOf(c)
	c.Remove(find[*lwsv1.LeaderWorkerSet](c, "w"), metav1.DeletePropagationOrphan)
	for range 20 {
		c.settleOthers()
	}
	sameClaims(t, "after orphaning", want, claimsOf(c))
}

// settleOthers lets everybody but the operator act, and time pass.
func (c *cluster) settleOthers() { c.others(); c.pass(time.Second) }

func TestANewLifeWaitsForTheClaimsOfTheLast(t *testing.T) {
	c := running(t, 2, 2, fakeapi.Volumes(deleteClaims, retainClaims))
	former := claimsOf(c)
	set := find[*lwsv1.LeaderWorkerSet](c, "w").DeepCopy()
	fakeapi.Drop[*lwsv1.LeaderWorkerSet](c.Server, "w")
	for range 20 { // only claims that somebody holds are left
		for _, claim := range fakeapi.All[*corev1.PersistentVolumeClaim](c.Objects) {
			held := fakeapi.Edit(c.Server, claim.Name, func(claim *corev1.PersistentVolumeClaim) { claim.Finalizers = []string{"example.com/snapshot"} })
			c.Collect(held)
		}
		c.others()
	}
	set.UID, set.Generation, set.Status, set.CreationTimestamp = "", 0, lwsv1.LeaderWorkerSetStatus{}, metav1.Time{}
	fakeapi.Add(c.Server, set)
	for range 3 {
		c.do(c.decideSet())
		c.settleOthers()
	}
	if sts := fakeapi.Find[*appsv1.StatefulSet](c.Server, "w"); sts != nil {
		t.Fatal("started beside claims of the last life")
	}
	if message := condition(c.status(), progressing).Message; !strings.Contains(message, "data-w-0") {
		t.Errorf("does not tell of them: %q", message)
	}
	for name := range former {
		fakeapi.Drop[*corev1.PersistentVolumeClaim](c.Server, name)
	}
	c.settleAll()
	for name, uid := range claimsOf(c) {
		if former[name] == uid {
			t.Errorf("claim %s is of the last life", name)
		}
	}
	if ready := c.status().ReadyReplicas; ready != 2 {
		t.Errorf("%d groups ready", ready)
	}
}

func TestWorkersWaitForTheClaimsOfTheScaledAway(t *testing.T) {
	c := running(t, 1, 3, fakeapi.Volumes(retainClaims, deleteClaims))
	fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-0")
	for _, pod := range []string{"w-0-1", "w-0-2"} {
		fakeapi.Drop[*corev1.Pod](c.Server, pod)
	}
	fakeapi.Edit(c.Server, "data-w-0-1", func(claim *corev1.PersistentVolumeClaim) {
		fakeapi.OwnedBy(claim, "v1", fakeapi.Former(identity.KindPod, "w-0"))
	})
	if plan := c.decideGroup("w-0"); len(plan.Actions) > 0 {
		t.Errorf("got %v beside a claim that is about to go", spelled(plan))
	}
	c.settleAll()
	if ready := c.status().ReadyReplicas; ready != 1 {
		t.Errorf("%d groups ready", ready)
	}
}

func TestClaimsThatAreToOutliveTheSetAreLetGo(t *testing.T) {
	c := running(t, 3, 2, fakeapi.Volumes(deleteClaims, retainClaims))
	want := claimsOf(c)
	replicasTo(c, 1)
	c.settleAll()
	c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
		spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy.WhenDeleted = retainClaims
	})
	c.settleAll()
	for name := range want {
		if got := ownerOf(c, name); got != "" {
			t.Errorf("%s belongs to %s", name, got)
		}
	}
	fakeapi.Drop[*lwsv1.LeaderWorkerSet](c.Server, "w")
	for range 20 {
		c.others()
	}
	sameClaims(t, "after the set", want, claimsOf(c))
}

func TestClaimsOfOthersAreLeftAlone(t *testing.T) {
	c := running(t, 1, 2, fakeapi.Volumes(deleteClaims, retainClaims))
	keeper := fakeapi.Add(c.Server, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: "keeper"}})
	fakeapi.Edit(c.Server, "data-w-0-1", func(claim *corev1.PersistentVolumeClaim) {
		fakeapi.OwnedBy(claim, "v1", identity.RefOf(identity.KindPod, keeper))
	})
	if ties := of[action.Tie](c.decideSet()); len(ties) > 0 {
		t.Errorf("got %v", ties)
	}
	fakeapi.Edit(c.Server, "data-w-0-1", func(claim *corev1.PersistentVolumeClaim) { *claim.OwnerReferences[0].Controller = false })
	tie := one[action.Tie](t, c.decideSet())
	if len(tie.Owners) != 2 || tie.Owners[0].UID != keeper.UID {
		t.Errorf("takes from a claim what others gave it: %v", tie.Owners)
	}
}

func replicasTo(c *cluster, replicas int32) {
	c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) { spec.Replicas = &replicas })
}
