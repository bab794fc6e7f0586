package lws_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/lwstest"
)

func TestClaimsMadeByOthersAreTakenFromTheWorkerStatefulSet(t *testing.T) {
	c := running(t, 1, 3, lwstest.Volumes(deleteClaims, retainClaims))
	if asOthersMade(c) != 2 || ownerOf(c, "data-w-0-1") != "StatefulSet w-0" {
		t.Fatalf("data-w-0-1 belongs to %q", ownerOf(c, "data-w-0-1"))
	}
	template := find[*appsv1.StatefulSet](c, "w-0").Spec.Template.DeepCopy()
	for _, want := range []string{"tie persistentvolumeclaim data-w-0-1, tie persistentvolumeclaim data-w-0-2", "apply statefulset w-0", ""} {
		plan := c.decideGroup("w-0")
		if got := strings.Join(spelled(plan), ", "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		c.do(plan)
	}
	policy := find[*appsv1.StatefulSet](c, "w-0").Spec.PersistentVolumeClaimRetentionPolicy
	if policy.WhenDeleted != retainClaims || ownerOf(c, "data-w-0-1") != "LeaderWorkerSet w" {
		t.Errorf("got policy %v, owner %q", policy, ownerOf(c, "data-w-0-1"))
	}
	if now := find[*appsv1.StatefulSet](c, "w-0").Spec.Template; len(template.Spec.Containers) != len(now.Spec.Containers) || template.Labels[lwsv1.RevisionKey] != now.Labels[lwsv1.RevisionKey] {
		t.Errorf("the template was changed: %v", now)
	}
}

// The operator and the StatefulSet controller would write one claim at the same
// time, and refuse each other's writes.
func TestAClaimIsWrittenOnceWhenItIsTakenOver(t *testing.T) {
	for whenDeleted, want := range map[retention]string{deleteClaims: "operator", retainClaims: "statefulset controller"} {
		t.Run(string(whenDeleted), func(t *testing.T) {
			c := running(t, 1, 2, lwstest.Volumes(deleteClaims, retainClaims))
			asOthersMade(c)
			c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
				spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy.WhenDeleted = whenDeleted
			})
			var wrote []string
			version := find[*corev1.PersistentVolumeClaim](c, "data-w-0-1").ResourceVersion
			after := func(who string) {
				if now := find[*corev1.PersistentVolumeClaim](c, "data-w-0-1").ResourceVersion; now != version {
					wrote, version = append(wrote, who), now
				}
			}
			for range 4 { // the StatefulSet controller is late every time
				for range 3 {
					c.do(c.decideGroup("w-0"))
					after("operator")
				}
				c.Sync(find[*appsv1.StatefulSet](c, "w-0"))
				after("statefulset controller")
			}
			if len(wrote) != 1 || wrote[0] != want {
				t.Errorf("written by %v, want once by the %s", wrote, want)
			}
		})
	}
}

// What a claim belongs to is not safe before the StatefulSet controller has seen
// that it is none of its business.
func TestNoGroupIsRecreatedWhileItsClaimsMayBeTakenAgain(t *testing.T) {
	c := running(t, 1, 2, lwstest.Volumes(deleteClaims, retainClaims), lwstest.Policy(lwsv1.RecreateGroupOnPodRestart))
	asOthersMade(c)
	c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
		spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy.WhenDeleted = retainClaims
	})
	claims := claimsOf(c)
	lwstest.Edit(c.FakeStore, "w-0-1", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
	for range 3 {
		c.do(c.decideGroup("w-0"))
		c.do(c.decideSet())
	}
	if find[*appsv1.StatefulSet](c, "w-0").DeletionTimestamp != nil {
		t.Fatal("the group is given up with its claims")
	}
	if wait, ok := waitFor(c.decideGroup("w-0"), lws.CodeTie); !ok || !strings.Contains(wait.Sentence, "w-0") {
		t.Errorf("does not say what it waits for: %+v", wait)
	}
	leader := find[*corev1.Pod](c, "w-0").UID
	c.settleAll()
	if find[*corev1.Pod](c, "w-0").UID == leader {
		t.Error("the group was not recreated")
	}
	sameClaims(t, "after the restart", claims, claimsOf(c))
}

// Another implementation granted the groups, and asked nobody about their claims. The
// StatefulSet controller may replace their leaders at any time; we do not before.
func TestNoLeaderIsReplacedWhileItsClaimsMayBeTakenAgain(t *testing.T) {
	c := newCluster(t)
	c.WithoutMaxUnavailable = true
	lwstest.Add(c.FakeStore, lwstest.Set("w", 3, 2, lwstest.Volumes(deleteClaims, retainClaims), func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromInt32(2)}
	}))
	c.settle("w-0", "w-1", "w-2")
	asOthersMade(c)
	c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
		spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy.WhenDeleted = retainClaims
	})
	claims := claimsOf(c)
	c.do(c.decideSet())
	grant := func() {
		lwstest.Edit(c.FakeStore, "w", func(sts *appsv1.StatefulSet) {
			sts.Spec.UpdateStrategy.RollingUpdate.Partition = lwstest.Ptr[int32](1)
			sts.Status.ObservedGeneration, sts.Status.UpdateRevision = sts.Generation, "next"
		})
	}
	grant()
	for range 3 {
		plan := c.decideSet()
		if deleted := of[action.Delete](plan); len(deleted) > 0 {
			t.Fatalf("%s is deleted, and %q would go with its workers", deleted[0].Object, ownerOf(c, "data-w-2-1"))
		}
		c.do(plan)
		grant()
	}
	if _, waits := waitFor(c.decideSet(), lws.CodeTie); !waits {
		t.Errorf("invalid: nothing is waited for by %v", spelled(c.decideSet()))
	}
	for _, name := range []string{"w-0", "w-1", "w-2"} {
		c.Sync(find[*appsv1.StatefulSet](c, name))
	}
	if len(of[action.Delete](c.decideSet())) != 2 {
		t.Errorf("no leader is replaced once their claims are nobody's: %v", spelled(c.decideSet()))
	}
	c.settleAll()
	sameClaims(t, "after the rollout", claims, claimsOf(c))
}

// A group does not cease to be ready because its StatefulSet was disarmed, and only
// for that.
func TestAGroupThatIsTakenOverStaysReady(t *testing.T) {
	c := running(t, 1, 2, lwstest.Volumes(deleteClaims, retainClaims))
	asOthersMade(c)
	for range 3 {
		c.do(c.decideGroup("w-0"))
	}
	sts := find[*appsv1.StatefulSet](c, "w-0")
	if sts.Status.ObservedGeneration >= sts.Generation {
		t.Fatalf("invalid: generation %d was seen", sts.Generation)
	}
	if writes := of[action.WriteStatus](c.decideSet()); len(writes) > 0 {
		t.Errorf("the status is written: %+v", writes[0].Status)
	}
	lwstest.Edit(c.FakeStore, "w-0", func(sts *appsv1.StatefulSet) { sts.Generation++ })
	if write := one[action.WriteStatus](t, c.decideSet()); write.Status.ReadyReplicas != 0 {
		t.Errorf("got %d groups ready by a status of another spec", write.Status.ReadyReplicas)
	}
}

// Whoever leaves behind workers that another implementation made, before anybody saw to
// their claims, takes none of them along: where the claims are to be nobody's, their
// StatefulSet would take them again for as long as it stands.
func TestALeaderThatLeavesTakesNoClaimsThatOthersLeftToItsWorkers(t *testing.T) {
	c := running(t, 2, 3, lwstest.Volumes(deleteClaims, retainClaims), onRestart)
	asOthersMade(c)
	c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
		spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy.WhenDeleted = retainClaims
	})
	before := claimsOf(c)
	leaves(t, c, "w-1")
	for range 3 { // the StatefulSet controller has the last word every time
		c.do(c.decideGroup("w-1"))
		if sts := lwstest.Find[*appsv1.StatefulSet](c.FakeStore, "w-1"); sts != nil {
			c.Sync(sts)
		}
	}
	if owner := ownerOf(c, "data-w-1-1"); owner != "" {
		t.Errorf("data-w-1-1 belongs to %q", owner)
	}
	c.settleAll()
	sameClaims(t, "after a restart", before, claimsOf(c))
}
