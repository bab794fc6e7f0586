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

// holds are the ways in which a change of the policy does not reach a group.
var holds = map[string]func(*cluster, lwsv1.RestartPolicyType){
	"Partition": func(c *cluster, to lwsv1.RestartPolicyType) {
		policyTo(c, to, 2)
		c.settleAll()
	},
	"Paused": func(c *cluster, to lwsv1.RestartPolicyType) {
		pause(c)
		policyTo(c, to, 0)
		c.settleAll()
	},
	"PausedUnderAPartition": func(c *cluster, to lwsv1.RestartPolicyType) {
		policyTo(c, to, 1)
		c.settleAll()
		pause(c)
	},
}

func policyTo(c *cluster, to lwsv1.RestartPolicyType, partition int32) {
	c.spec(func(spec *lwsv1.LeaderWorkerSetSpec) {
		spec.LeaderWorkerTemplate.RestartPolicy = to
		spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{Partition: &partition}
		spec.RolloutStrategy.RollingUpdateConfiguration.MaxUnavailable.IntVal = 1
	})
}

// unrolled is a cluster with a set of two groups of three whose policy was changed,
// and group 0, which the change does not reach, coming anew: its last worker does
// not run yet.
func unrolled(t *testing.T, from, to lwsv1.RestartPolicyType, hold func(*cluster, lwsv1.RestartPolicyType)) *cluster {
	t.Helper()
	c := running(t, 2, 3, fakeapi.Policy(from))
	revision := find[*corev1.Pod](c, "w-0").Labels[lwsv1.RevisionKey]
	hold(c, to)
	c.again()
	if got := find[*corev1.Pod](c, "w-0").Labels[lwsv1.RevisionKey]; got != revision {
		t.Fatalf("invalid run: group 0 was rolled from %s to %s", revision, got)
	}
	return c
}

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

// A group that is not rolled yet fails in its start by the policy that it was made
// under, not by the one that its set has meanwhile. Only None holds at once.
func TestAGroupStartsUnderThePolicyOfItsRevision(t *testing.T) {
	const none, on, after = lwsv1.NoneRestartPolicy, lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart
	changes := []struct {
		from, to lwsv1.RestartPolicyType
		want     bool
	}{
		{after, on, false}, {on, after, true},
		{after, none, false}, {on, none, false},
		{none, on, false}, {none, after, false},
	}
	for held, hold := range holds {
		for _, tt := range changes {
			t.Run(held+"/"+string(tt.from)+"To"+string(tt.to), func(t *testing.T) {
				c := unrolled(t, tt.from, tt.to, hold)
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
}

// What was forgiven in the start hides nothing that fails after it.
func TestAGroupMayFailAfterItsStart(t *testing.T) {
	for held, hold := range holds {
		c := unrolled(t, lwsv1.RecreateGroupAfterStart, lwsv1.RecreateGroupOnPodRestart, hold)
		fakeapi.Edit(c.Server, "w-0-1", crash)
		if got := c.recreated("w-0"); len(got) != 0 {
			t.Fatalf("%s: recreated %v for its start", held, got)
		}
		fakeapi.Edit(c.Server, "w-0-1", func(pod *corev1.Pod) {
			pod.Annotations["crashes"] = "again"
			crash(pod)
		})
		if got := c.recreated("w-0"); len(got) != 1 {
			t.Errorf("%s: not recreated: %+v", held, c.status().Started)
		}
	}
}

// The annotation is the set's and in no revision: it holds for all groups at once.
func TestTheAfterStartAnnotationHoldsForAllGroups(t *testing.T) {
	c := unrolled(t, lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupOnPodRestart, holds["Partition"])
	fakeapi.Edit(c.Server, "w", fakeapi.Annotation(lwsv1.RecreateGroupAfterStartAnnotationKey, ""))
	fakeapi.Edit(c.Server, "w-0-1", crash)
	if got := c.recreated("w-0"); len(got) != 0 {
		t.Errorf("recreated %v", got)
	}
}

// A group at rest costs no read of its revision and no live read.
func TestNothingIsReadForTheRestartPolicyAtRest(t *testing.T) {
	c := running(t, 1, 2, onRestart)
	if w, _ := c.groupPlan("w-0"); w.Sought || w.Live {
		t.Errorf("read at rest: revision %t, live %t", w.Sought, w.Live)
	}
	fakeapi.Edit(c.Server, "w-0-1", crash)
	if w, _ := c.groupPlan("w-0"); !w.Sought || !w.Live {
		t.Errorf("read for a failure: revision %t, live %t", w.Sought, w.Live)
	}
}
