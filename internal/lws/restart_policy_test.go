package lws_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/fakeapi"
)

// again has group 0 come anew, as after its leader was drained, but for the last
// worker, which does not run yet.
func (c *cluster) again() {
	c.t.Helper()
	before := leaderUID(c, "w-0")
	c.Remove(find[*corev1.Pod](c, "w-0"), metav1.DeletePropagationBackground)
	for range 12 {
		c.collect()
		c.do(c.decideSet())
		c.do(c.decideGroup("w-0"))
		for _, sts := range fakeapi.All[*appsv1.StatefulSet](c.Objects) {
			c.Sync(sts)
		}
		for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
			if pod.Name != "w-0-2" || pod.DeletionTimestamp != nil {
				c.Run(pod)
			}
		}
		c.pass(time.Second)
	}
	last := find[*corev1.Pod](c, "w-0-2")
	if leaderUID(c, "w-0") == before || last.Status.Phase == corev1.PodRunning || find[*corev1.Pod](c, "w-0-1").Status.Phase != corev1.PodRunning {
		c.t.Fatalf("invalid run: group 0 is not starting: %s is %s", last.Name, last.Status.Phase)
	}
}

// The policy of the spec holds at once for all groups, also those that a pause keeps at the
// revision of another policy.
func TestTheRestartPolicyOfTheSpecHoldsAtOnce(t *testing.T) {
	const none, on, after = lwsv1.NoneRestartPolicy, lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart
	for _, tt := range []struct {
		from, to lwsv1.RestartPolicyType
		want     bool
	}{{after, on, true}, {none, on, true}, {on, after, false}, {none, after, false}, {on, none, false}} {
		t.Run(string(tt.from)+"To"+string(tt.to), func(t *testing.T) {
			c := running(t, 2, 3, fakeapi.Policy(tt.from))
			pause(c)
			c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) { spec.LeaderWorkerTemplate.RestartPolicy = tt.to })
			c.settleAll()
			c.again()
			before := leaderUID(c, "w-0")
			failuresInStart["ContainerRestarts"](c)
			if c.recreated("w-0", "w-1"); (leaderUID(c, "w-0") != before) != tt.want {
				t.Errorf("recreated: %t", !tt.want)
			}
			if got := c.recreated("w-0", "w-1"); len(got) != 0 {
				t.Errorf("recreated again for what was before: %+v", c.status().Restarts)
			}
		})
	}
}

// The annotation holds for all groups. What it forgives in the start hides nothing after it.
func TestTheAfterStartAnnotation(t *testing.T) {
	c := running(t, 2, 3, onRestart)
	c.again()
	fakeapi.Edit(c.Server, "w", fakeapi.Annotation(lwsv1.RecreateGroupAfterStartAnnotationKey, ""))
	fakeapi.Edit(c.Server, "w-0-1", crash)
	if got := c.recreated("w-0"); len(got) != 0 {
		t.Fatalf("recreated %v for its start", got)
	}
	fakeapi.Edit(c.Server, "w-0-1", func(pod *corev1.Pod) {
		pod.Annotations["crashes"] = "again"
		crash(pod)
	})
	if got := c.recreated("w-0"); len(got) != 1 {
		t.Errorf("not recreated after its start: %+v", c.status().Started)
	}
}

// A group at rest costs no live read.
func TestNothingIsReadLiveAtRest(t *testing.T) {
	c := running(t, 1, 2, onRestart)
	if w, _ := c.groupPlan("w-0"); w.Live {
		t.Error("read live at rest")
	}
	fakeapi.Edit(c.Server, "w-0-1", crash)
	if w, _ := c.groupPlan("w-0"); !w.Live {
		t.Error("not read live for a failure")
	}
}
