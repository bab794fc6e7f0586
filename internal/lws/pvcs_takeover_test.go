package lws_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

func TestClaimsMadeByOthersAreTakenFromTheWorkerStatefulSet(t *testing.T) {
	c := running(t, 1, 3, fakeapi.Volumes(deleteClaims, retainClaims))
	if asOthersMade(c) != 3 || ownerOf(c, "data-w-0-1") != "StatefulSet w-0" {
		t.Fatalf("data-w-0-1 belongs to %q", ownerOf(c, "data-w-0-1"))
	}
	template := find[*appsv1.StatefulSet](c, "w-0").Spec.Template.DeepCopy()
	for _, want := range []string{
		"tie persistentvolumeclaim data-w-0, tie persistentvolumeclaim data-w-0-1, tie persistentvolumeclaim data-w-0-2",
		"apply statefulset w-0", "apply statefulset w", "",
	} {
		plan := c.decideSet()
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

// What a claim belongs to is not safe before the StatefulSet controller has seen
// that it is none of its business.
func TestNoGroupIsRecreatedWhileItsClaimsMayBeTakenAgain(t *testing.T) {
	c := running(t, 1, 2, fakeapi.Volumes(deleteClaims, retainClaims), fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart))
	asOthersMade(c)
	c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
		spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy.WhenDeleted = retainClaims
	})
	claims := claimsOf(c)
	fakeapi.Edit(c.Server, "w-0-1", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
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
