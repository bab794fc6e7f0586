package lws_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/lwstest"
)

// madeAgain is a set that was deleted and left all that it had behind, and was made again
// before anybody saw that it was gone.
func (c *cluster) madeAgain() {
	c.t.Helper()
	free := func(object metav1.Object) { object.SetOwnerReferences(nil) }
	lwstest.Edit(c.FakeStore, "w", func(sts *appsv1.StatefulSet) { free(sts) })
	for _, revision := range revisions(c) {
		lwstest.Edit(c.FakeStore, revision.Name, func(r *appsv1.ControllerRevision) { free(r) })
	}
	lwstest.Edit(c.FakeStore, "w", func(set *lwsv1.LeaderWorkerSet) {
		set.UID, set.CreationTimestamp, set.Status = "again", metav1.NewTime(c.Now), lwsv1.LeaderWorkerSetStatus{}
	})
}

// What was found of a group for the set before is nothing to the one that was made around
// its pods: it takes them as they are. The group told it for ever of a failure that it
// does not hear of, and of none that came after.
func TestAFailureFoundForTheSetBeforeHidesNoneThatComesAfter(t *testing.T) {
	c := running(t, 1, 3, onRestart)
	lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0-2")
	c.noted("w-0").madeAgain()
	if got := c.recreated("w-0"); len(got) > 0 {
		t.Errorf("%v are recreated for what was before", got)
	}
	if len(c.status().Started) != 1 {
		t.Error("nobody tells what the group was made of when it started")
	}
	lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0-1")
	if got := c.recreated("w-0"); !slices.Equal(got, []string{"w-0"}) {
		t.Errorf("%v are recreated for what came after", got)
	}
}

// None forgives what was found before, whether or not the set wrote it down, and what
// workers that are replaced alone were before: once the policy is back, also where the
// groups were not rolled for it, none of that is a failure.
func TestWhatWasFoundBeforeNoneIsForgiven(t *testing.T) {
	for name, found := range map[string]func(*cluster){
		"a failure": func(c *cluster) {
			lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0-2")
			c.noted("w-0")
		},
		"a record": func(c *cluster) {
			lwstest.Edit(c.FakeStore, "w", func(set *lwsv1.LeaderWorkerSet) { set.Status.Started = nil })
			c.noted("w-0")
			lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0-2")
		},
	} {
		c := running(t, 1, 3, onRestart, lwstest.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue))
		found(c)
		for _, policy := range []lwsv1.RestartPolicyType{lwsv1.NoneRestartPolicy, lwsv1.RecreateGroupOnPodRestart} {
			c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) { spec.LeaderWorkerTemplate.RestartPolicy = policy })
			if got := c.recreated("w-0"); len(got) > 0 {
				t.Errorf("%s, then %s: %v are recreated", name, policy, got)
			}
		}
		lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0-1")
		if got := c.recreated("w-0"); len(got) != 1 {
			t.Errorf("%s: what came after is not answered", name)
		}
	}
}

// Leaders that stand without their StatefulSet when the set is first looked at are from
// before, as those that have one are.
func TestLeadersThatWereLeftBehindBeforeAnUpgradeAreTakenAsTheyAre(t *testing.T) {
	c := running(t, 3, 2, onRestart)
	for _, name := range []string{"w-0-1", "w-1"} {
		lwstest.Edit(c.FakeStore, name, func(pod *corev1.Pod) { crash(pod) })
	}
	lwstest.Edit(c.FakeStore, "w-1-1", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending })
	for _, name := range three {
		lwstest.Edit(c.FakeStore, name, func(pod *corev1.Pod) { pod.OwnerReferences = nil })
	}
	lwstest.Drop[*appsv1.StatefulSet](c.FakeStore, "w")
	lwstest.Edit(c.FakeStore, "w", func(set *lwsv1.LeaderWorkerSet) { set.Status.Started, set.Status.RestartsSince = nil, nil })
	c.awake()
	if got := c.recreated(three...); len(got) != 0 {
		t.Errorf("recreated %v", got)
	}
}
