package lws_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/lwstest"
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
	c := running(t, 2, 3, lwstest.Policy(from))
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
		for _, sts := range lwstest.All[*appsv1.StatefulSet](c.Objects) {
			c.Sync(sts)
		}
		for _, pod := range lwstest.All[*corev1.Pod](c.Objects) {
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
func TestAGroupThatIsNotRolledFailsInStartByItsOwnPolicy(t *testing.T) {
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
			for name, fail := range failuresInStart {
				want := tt.want && name != "PodGoneInStart"
				t.Run(held+"/"+string(tt.from)+"To"+string(tt.to)+"/"+name, func(t *testing.T) {
					c := unrolled(t, tt.from, tt.to, hold)
					before := leaderUID(c, "w-0")
					fail(c)
					c.do(c.decideGroup("w-0"))
					c.do(c.decideSet())
					if failed := lws.Failed(c.set("w").Set, 0, find[*corev1.Pod](c, "w-0").UID) != nil; failed != want {
						t.Errorf("it failed: %t", failed)
					}
					if c.recreated("w-0", "w-1"); (leaderUID(c, "w-0") != before) != want {
						t.Errorf("recreated: %t", !want)
					}
					if got := c.recreated("w-0", "w-1"); len(got) != 0 {
						t.Errorf("once started, what was before is held against it: %+v", c.status().Restarts)
					}
				})
			}
		}
	}
}

// A spec that was edited is not what the groups run, also while no look has answered it.
func TestAPolicyHoldsForNoGroupFromTheMomentOfItsEdit(t *testing.T) {
	c := unrolled(t, lwsv1.RecreateGroupAfterStart, lwsv1.RecreateGroupOnPodRestart, func(*cluster, lwsv1.RestartPolicyType) {})
	policyTo(c, lwsv1.RecreateGroupOnPodRestart, 0)
	lwstest.Edit(c.FakeStore, "w-0-1", crash)
	if found := c.decideGroup("w-0").Finding; found != nil {
		t.Errorf("found %+v", found.Failure)
	}
}

// The annotation is the set's and in no revision: it holds for all groups at once.
func TestTheAnnotationThatForgivesAStartHoldsForGroupsThatAreNotRolled(t *testing.T) {
	c := unrolled(t, lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupOnPodRestart, holds["Partition"])
	lwstest.Edit(c.FakeStore, "w", lwstest.Annotation(lwsv1.RecreateGroupAfterStartAnnotationKey, ""))
	lwstest.Edit(c.FakeStore, "w-0-1", crash)
	if asked := lws.PoliciesAsked(c.group("w-0")); len(asked) != 0 {
		t.Errorf("the policy of %v is asked for", asked)
	}
	if got := c.recreated("w-0"); len(got) != 0 {
		t.Errorf("recreated %v", got)
	}
}

// What was forgiven in the start hides nothing that fails after it.
func TestAGroupThatIsNotRolledAndWasForgivenItsStartMayStillFail(t *testing.T) {
	for held, hold := range holds {
		c := unrolled(t, lwsv1.RecreateGroupAfterStart, lwsv1.RecreateGroupOnPodRestart, hold)
		lwstest.Edit(c.FakeStore, "w-0-1", crash)
		if got := c.recreated("w-0"); len(got) != 0 {
			t.Fatalf("%s: recreated %v for its start", held, got)
		}
		lwstest.Edit(c.FakeStore, "w-0-1", func(pod *corev1.Pod) {
			pod.Annotations["crashes"] = "again"
			crash(pod)
		})
		if got := c.recreated("w-0"); len(got) != 1 {
			t.Errorf("%s: not recreated: %+v", held, c.status().Started)
		}
	}
}

// A leader that ends by itself in the start, on its way out and gone, is judged by
// its own policy as well, whatever the one after it was made under.
func TestALeaderThatEndedInItsStartIsJudgedByItsOwnPolicy(t *testing.T) {
	ended := func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted" }
	for held, hold := range holds {
		for _, tt := range []struct {
			from, to lwsv1.RestartPolicyType
			want     bool
		}{
			{lwsv1.RecreateGroupAfterStart, lwsv1.RecreateGroupOnPodRestart, false},
			{lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart, true},
		} {
			c := unrolled(t, tt.from, tt.to, hold)
			lwstest.Edit(c.FakeStore, "w-0", func(pod *corev1.Pod) {
				ended(pod)
				pod.DeletionTimestamp = &metav1.Time{Time: c.Now}
			})
			for range 2 { // what was found is found again
				plan := c.decideGroup("w-0")
				if found := plan.Finding; (found != nil) != tt.want {
					t.Errorf("%s, from %s to %s, leaving: found %+v", held, tt.from, tt.to, found)
				}
				c.memory.Found(plan.Finding)
			}

			c = unrolled(t, tt.from, tt.to, hold)
			lwstest.Edit(c.FakeStore, "w-0", ended)
			c.memory.Over(find[*corev1.Pod](c, "w-0"), c.Now)
			lwstest.Drop[*corev1.Pod](c.FakeStore, "w-0")
			c.Sync(find[*appsv1.StatefulSet](c, "w"))
			found := c.decideGroup("w-0").Finding
			if failed := found != nil && found.Failure != nil; failed != tt.want {
				t.Errorf("%s, from %s to %s, gone: found %+v", held, tt.from, tt.to, found)
			}
		}
	}
}

// A look reads revisions for the policy only while a failure stands that it decides
// on: not at rest, and not once it is known what becomes of it.
func TestNoPolicyIsAskedForAtRest(t *testing.T) {
	for _, policy := range []lwsv1.RestartPolicyType{lwsv1.RecreateGroupOnPodRestart, lwsv1.RecreateGroupAfterStart} {
		asks := func(c *cluster, when string, want bool) {
			t.Helper()
			w := c.group("w-0")
			if asked := len(lws.PoliciesAsked(w)) > 0; asked != want || asked == w.Revisions.Empty() {
				t.Errorf("%s, %s: asked %t, revisions read %t", policy, when, asked, !w.Revisions.Empty())
			}
		}
		c := unrolled(t, policy, policy, func(*cluster, lwsv1.RestartPolicyType) {})
		asks(c, "starting", false)
		lwstest.Edit(c.FakeStore, "w-0-1", crash)
		asks(c, "after a restart in the start", true)
		c.do(c.decideGroup("w-0"))
		found := c.group("w-0").Finding.Failure != nil
		asks(c, "once that was judged", !found)
		c.do(c.decideSet())
		asks(c, "once the set has judged it", !found)
		c.recreated("w-0", "w-1")
		asks(c, "at rest", false)
		lwstest.Edit(c.FakeStore, "w-0-1", func(pod *corev1.Pod) { pod.Annotations["crashes"] = "again"; crash(pod) })
		asks(c, "after a restart", false)
	}
}
