package lws_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/fakeapi"
)

// holds are the ways in which a change of the policy does not reach a group.
var holds = map[string]func(lwsv1.RestartPolicyType) step{
	"by a partition": func(to lwsv1.RestartPolicyType) step { return then(user(fakeapi.Policy(to), partitioned(2)), settled) },
	"by a pause":     func(to lwsv1.RestartPolicyType) step { return then(pause, user(fakeapi.Policy(to)), settled) },
	"by both": func(to lwsv1.RestartPolicyType) step {
		return then(user(fakeapi.Policy(to), partitioned(1)), settled, pause)
	},
}

// unrolled is a set of two groups of three whose policy was changed, and whose group 0, which
// the change does not reach, starts again: its last worker does not run yet.
func unrolled(t *testing.T, from, to lwsv1.RestartPolicyType, hold func(lwsv1.RestartPolicyType) step) *cluster {
	t.Helper()
	c := running(t, 2, 3, fakeapi.Policy(from))
	before := find[Pod](c, "w-0")
	then(hold(to), func(c *cluster) { c.Remove(find[Pod](c, "w-0"), metav1.DeletePropagationBackground) })(c)
	for range 3 {
		c.collect()
		starting(c)
		c.pass(4 * time.Second)
	}
	now := find[Pod](c, "w-0")
	if now.UID == before.UID || now.Labels[lwsv1.RevisionKey] != before.Labels[lwsv1.RevisionKey] ||
		find[Pod](c, "w-0-1").Status.Phase != corev1.PodRunning || find[Pod](c, "w-0-2").Status.Phase == corev1.PodRunning {
		t.Fatalf("invalid run: group 0 does not start at its own revision")
	}
	return c
}

// A group that is not rolled yet fails in its start by the policy that it was created
// under, not by the one that its set has meanwhile. Only None holds at once.
func TestAGroupStartsUnderThePolicyOfItsRevision(t *testing.T) {
	const none, on_, after = lwsv1.NoneRestartPolicy, lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart
	for held, hold := range holds {
		for _, tt := range []struct {
			from, to lwsv1.RestartPolicyType
			want     bool
		}{{after, on_, false}, {on_, after, true}, {after, none, false}, {on_, none, false}, {none, on_, false}, {none, after, false}} {
			t.Run(held+"/"+string(tt.from)+"To"+string(tt.to), func(t *testing.T) {
				c := unrolled(t, tt.from, tt.to, hold)
				before := leaderUID(c, "w-0")
				on("w-0-1", crash)(c)
				if c.recreated("w-0", "w-1"); (leaderUID(c, "w-0") != before) != tt.want {
					t.Errorf("recreated: %t", !tt.want)
				}
				if got := c.recreated("w-0", "w-1"); len(got) != 0 {
					t.Errorf("recreated again for what was before: %+v", c.status().Restarts)
				}
				if tt.from != after || tt.to != on_ {
					return
				}
				on("w-0-1", func(pod Pod) {
					pod.Annotations["crashes"] = "again"
					crash(pod)
				})(c)
				if got := c.recreated("w-0"); len(got) != 1 {
					t.Errorf("after its start, not recreated: %+v", c.status().Started)
				}
			})
		}
	}
}

// The annotation is the set's and in no revision: it holds for all groups at once.
func TestTheAfterStartAnnotationHoldsForAllGroups(t *testing.T) {
	c := unrolled(t, lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupOnPodRestart, holds["by a partition"])
	then(user(fakeapi.Annotation(lwsv1.RecreateGroupAfterStartAnnotationKey, "")), on("w-0-1", crash))(c)
	if got := c.recreated("w-0"); len(got) != 0 {
		t.Errorf("recreated %v", got)
	}
}

// A group at rest costs no read of its revision and no live read.
func TestNothingIsReadForTheRestartPolicyAtRest(t *testing.T) {
	c := running(t, 1, 2, onRestart)
	for _, fails := range []bool{false, true} {
		if w, _ := c.groupPlan("w-0"); w.Sought != fails || w.Live != fails {
			t.Errorf("fails %t: revision %t, live %t", fails, w.Sought, w.Live)
		}
		on("w-0-1", crash)(c)
	}
}
