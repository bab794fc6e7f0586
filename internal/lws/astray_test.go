package lws_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/lwstest"
)

// leftBehind is a set of one group whose leader was deleted and its workers left
// behind while the set was rolled on to image:2.
func leftBehind(t *testing.T, edits ...func(*lwsv1.LeaderWorkerSet)) *cluster {
	t.Helper()
	c := running(t, 1, 3, edits...)
	lwstest.Edit(c.FakeStore, "w-0", func(sts *appsv1.StatefulSet) { sts.OwnerReferences = nil })
	lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0")
	image(c, "image:2")
	c.settle()
	if image := find[*corev1.Pod](c, "w-0").Spec.Containers[0].Image; image != "image:2" {
		t.Fatalf("the leader has %s", image)
	}
	return c
}

// Whoever leaves workers behind has them adopted, at whatever revision: nobody else
// would ever see to them.
func TestAnOrphanedWorkerStatefulSetIsAdopted(t *testing.T) {
	for _, older := range []bool{false, true} {
		c := running(t, 1, 2)
		lwstest.Edit(c.FakeStore, "w-0", func(sts *appsv1.StatefulSet) {
			sts.OwnerReferences = nil
			if older {
				sts.Labels[lwsv1.RevisionKey] = "older"
			}
		})
		adoption := one[action.Apply](t, c.decideGroup("w-0"))
		leader := find[*corev1.Pod](c, "w-0")
		if *adoption.Adopter != identity.RefOf(identity.KindPod, leader) || !metav1.IsControlledBy(adoption.Object, leader) {
			t.Errorf("older %t: adopted by %v", older, adoption.Adopter)
		}
	}
}

// A revision is needed to make workers, not to keep those that run: their group was not
// ready for ever, and held up the rollout that would have replaced it.
func TestAnOrphanedWorkerStatefulSetIsAdoptedThoughItsRevisionIsLost(t *testing.T) {
	c := running(t, 1, 2)
	lwstest.Edit(c.FakeStore, "w-0", func(sts *appsv1.StatefulSet) { sts.OwnerReferences = nil })
	for _, lost := range revisions(c) {
		delete(c.Objects, lwstest.NameOf(lost))
	}
	one[action.Apply](t, c.decideGroup("w-0"))
}

// While they waited to be adopted, the set told its user to remove the workers, as if
// they were somebody else's.
func TestWorkersThatAreAboutToBeAdoptedAreInNobodysWay(t *testing.T) {
	c := running(t, 1, 2)
	lwstest.Edit(c.FakeStore, "w-0", func(sts *appsv1.StatefulSet) { sts.OwnerReferences = nil })
	for name, plan := range map[string]lws.Plan{"set": c.decideSet(), "group": c.decideGroup("w-0")} {
		if conflict, told := waitFor(plan, lws.CodeNameConflict); told {
			t.Errorf("the %s tells: %s", name, conflict.Sentence)
		}
	}
}

func TestAStatefulSetWithoutARevisionIsNoOrphan(t *testing.T) {
	c := running(t, 1, 2)
	lwstest.Edit(c.FakeStore, "w-0", func(sts *appsv1.StatefulSet) {
		sts.OwnerReferences = nil
		delete(sts.Labels, lwsv1.RevisionKey)
	})
	if plan := c.decideGroup("w-0"); len(plan.Actions) > 0 {
		t.Errorf("got %v", spelled(plan))
	}
}

// They stayed a squatter for ever, and their group without workers.
func TestWorkersLeftBehindAtAnOlderRevisionAreMadeAnew(t *testing.T) {
	for _, policy := range []lwsv1.RestartPolicyType{lwsv1.NoneRestartPolicy, lwsv1.RecreateGroupOnPodRestart} {
		c := leftBehind(t, lwstest.Policy(policy))
		leader := find[*corev1.Pod](c, "w-0").UID
		c.do(c.decideGroup("w-0"))
		if w := c.set("w"); w.Groups[0].Ready(w.Set) {
			t.Error("a group is ready whose workers are of another revision")
		}
		if plan := c.decideGroup("w-0"); plan.Finding != nil {
			t.Errorf("%s: found %+v of workers that are about to go", policy, plan.Finding)
		}
		deletion := one[action.Delete](t, c.decideGroup("w-0"))
		old := find[*appsv1.StatefulSet](c, "w-0")
		if deletion.Object != identity.RefOf(identity.KindStatefulSet, old) || deletion.AnyVersion || deletion.Because.Code != lws.CodeOutdated {
			t.Errorf("%s: deleted %+v", policy, deletion)
		}
		c.settleAll()
		for _, pod := range []string{"w-0", "w-0-1", "w-0-2"} {
			if image := find[*corev1.Pod](c, pod).Spec.Containers[0].Image; image != "image:2" {
				t.Errorf("%s: pod %s has %s", policy, pod, image)
			}
		}
		if got := find[*corev1.Pod](c, "w-0").UID; got != leader {
			t.Errorf("%s: the leader was recreated, of which nothing failed", policy)
		}
		if brief(c.status())[available] != isAvailable {
			t.Errorf("%s: %v", policy, brief(c.status()))
		}
	}
}

// A group may have no workers any more.
func TestWorkersLeftBehindByAGroupThatShrankGo(t *testing.T) {
	c := leftBehind(t)
	c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) { spec.LeaderWorkerTemplate.Size = lwstest.Ptr[int32](1) })
	c.settleAll()
	if pods := lwstest.All[*corev1.Pod](c.Objects); len(pods) != 1 {
		t.Errorf("%d pods stand", len(pods))
	}
}

// Nothing is given up before what takes its place is known.
func TestWorkersAstrayStayWhileTheirLeadersRevisionIsUnknown(t *testing.T) {
	c := running(t, 1, 2)
	lwstest.Edit(c.FakeStore, "w-0", func(pod *corev1.Pod) { pod.Labels[lwsv1.RevisionKey] = "lost" })
	plan := c.decideGroup("w-0")
	if _, waits := waitFor(plan, lws.CodeRevisionNotVisible); !waits || len(plan.Actions) > 0 {
		t.Errorf("got %v, waits %v", spelled(plan), plan.Waits)
	}
}

// The claims of workers left behind outlive them, though another implementation made
// their StatefulSet, to take them with it.
func TestClaimsOfWorkersLeftBehindStay(t *testing.T) {
	c := running(t, 1, 2, lwstest.Volumes(deleteClaims, retainClaims))
	asOthersMade(c)
	before := claimsOf(c)
	lwstest.Edit(c.FakeStore, "w-0", func(sts *appsv1.StatefulSet) { sts.OwnerReferences = nil })
	lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0")
	image(c, "image:2")
	c.settleAll()
	sameClaims(t, "after workers were made anew", before, claimsOf(c))
	if image := find[*corev1.Pod](c, "w-0-1").Spec.Containers[0].Image; image != "image:2" {
		t.Errorf("worker has %s", image)
	}
}

// The claims of a set that ended wait for workers that were left behind, and those for
// the next leader: each waited for the other.
func TestWorkersLeftBehindAreAdoptedBesideTheirEndingClaims(t *testing.T) {
	c := leftBehind(t, lwstest.Volumes(deleteClaims, retainClaims))
	for _, name := range []string{"data-w-0-1", "data-w-0-2"} {
		c.Remove(find[*corev1.PersistentVolumeClaim](c, name), metav1.DeletePropagationBackground)
	}
	c.settleAll()
	if brief(c.status())[available] != isAvailable {
		t.Errorf("%v", brief(c.status()))
	}
	if image := find[*corev1.Pod](c, "w-0-1").Spec.Containers[0].Image; image != "image:2" {
		t.Errorf("worker has %s", image)
	}
}
