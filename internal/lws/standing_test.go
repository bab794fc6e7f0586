package lws_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// states returns the wanted groups by state.
func (c *cluster) states() map[string]int32 {
	c.t.Helper()
	counted := map[string]int32{}
	for state, n := range c.decideSet().Standing.States {
		if n > 0 {
			counted[lws.GroupState(state).String()] = n
		}
	}
	return counted
}

func TestStatesOfGroups(t *testing.T) {
	failed := then(crashes, (*cluster).decided)
	recreated := then(failed, gone[Pod]("w-0", "w-0-1"), gone[StatefulSet]("w-0"))
	for name, tt := range map[string]struct {
		change step
		want   map[string]int32
	}{
		"ready":                     {func(*cluster) {}, map[string]int32{"ready": 2}},
		"surge groups do not count": {user(replicas(1)), map[string]int32{"ready": 1}},
		"scaled up":                 {user(replicas(4)), map[string]int32{"ready": 2, "starting": 2}},
		"not ready any more":        {on("w-0-1", func(pod Pod) { unready(pod) }), map[string]int32{"ready": 2}}, // until the StatefulSet says so
		"the leader is not ready":   {on("w-0", unready), map[string]int32{"ready": 1, "unready": 1}},
		"failed":                    {failed, map[string]int32{"ready": 1, "restarting": 1}},
		"recreated":                 {recreated, map[string]int32{"ready": 1, "restarting": 1}},
		"failed again":              {then(failed, settled, failed), map[string]int32{"ready": 1, "backingOff": 1}},
		"failed again, due": {
			then(failed, settled, failed, after(time.Minute)), map[string]int32{"ready": 1, "restarting": 1},
		},
		"recreated, and started": {then(failed, settled), map[string]int32{"ready": 2}},
		"rolled after a restart": {
			then(failed, settled, gone[Pod]("w-0", "w-0-1"), gone[StatefulSet]("w-0")), map[string]int32{"ready": 1, "starting": 1},
		},
		"another owner's workers": {
			then(withoutWorkers, func(c *cluster) {
				pod := fakeapi.Pod("w-0-1", "w", 1)
				strange(c, pod)
				fakeapi.Add(c.Server, pod)
			}), map[string]int32{"ready": 1, "waiting": 1},
		},
		"refused": {
			func(c *cluster) {
				withoutWorkers(c)
				set := find[Set](c, "w")
				c.memory.RefusedTo(set, "w-0", []lws.Refusal{{Sentence: "no", At: c.Now, Since: c.Now}})
			}, map[string]int32{"ready": 1, "refused": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := running(t, 2, 2, onRestart)
			tt.change(c)
			if diff := cmp.Diff(tt.want, c.states()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestStatesOfASetThatWaits(t *testing.T) {
	c := createdAgain(t, 2, 2, leaders(2)...)
	if diff := cmp.Diff(map[string]int32{"waiting": 2}, c.states()); diff != "" {
		t.Errorf("for a previous incarnation (-want +got)\n%s", diff)
	}
	c = newCluster(t)
	set := fakeapi.Add(c.Server, fakeapi.Set("w", 2, 2))
	c.memory.Refused(set, lws.Refusal{Sentence: "no", At: c.Now, Since: c.Now})
	if diff := cmp.Diff(map[string]int32{"refused": 2}, c.states()); diff != "" {
		t.Errorf("refused (-want +got)\n%s", diff)
	}
	user(func(set Set) {
		set.DeletionTimestamp, set.Finalizers = fakeapi.Ptr(set.CreationTimestamp), []string{"x/y"}
	})(c)
	if standing := c.decideSet().Standing; standing != nil {
		t.Errorf("a set that is being deleted stands at %+v", standing)
	}
}

// A new template takes no group down before the StatefulSet has it.
func TestGroupsThatAreDown(t *testing.T) {
	c := running(t, 4, 2, onRestart)
	image(c, "image:2")
	if s := c.decideSet().Standing; s.Down != 0 || s.Budget != 1 || s.Target-s.TargetUpdated != 4 {
		t.Errorf("before: %d groups are down of %d that may be, %d of %d are updated", s.Down, s.Budget, s.TargetUpdated, s.Target)
	}
	on("w-1", unready)(c)
	if s := c.decideSet().Standing; s.Down != 1 {
		t.Errorf("%d groups are down, want the one that is not ready", s.Down)
	}
}

// A group counts as not started until its record is in the status: its pods are beyond need if
// another leader comes first.
func TestGroupsThatHaveNotStarted(t *testing.T) {
	c := running(t, 2, 3, onRestart)
	if got := c.decideSet().Standing.Unstarted; len(got) != 0 {
		t.Errorf("%+v while all groups run", got)
	}
	then(gone[Pod]("w-1", "w-1-1", "w-1-2"), gone[StatefulSet]("w-1"))(c)
	c.sync()
	c.reconcileGroup("w-1")
	c.sync()
	want := []lws.UnstartedGroup{{Index: 1, Leader: c.leaders()["w-1"], Pods: 3}}
	if diff := cmp.Diff(want, c.decideSet().Standing.Unstarted); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	user(fakeapi.Policy(lwsv1.NoneRestartPolicy))(c)
	if got := c.decideSet().Standing.Unstarted; len(got) != 0 {
		t.Errorf("%+v with policy None, where no group is recorded", got)
	}
}

func TestAcceleratorsOfAGroup(t *testing.T) {
	requests := func(set Set) {
		limits := fakeapi.Resources("nvidia.com/gpu", "8")
		limits["cpu"], limits["hugepages-2Mi"] = fakeapi.Resources("cpu", "1")["cpu"], fakeapi.Resources("hugepages-2Mi", "2Mi")["hugepages-2Mi"]
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Limits = limits
		set.Spec.LeaderWorkerTemplate.LeaderTemplate = fakeapi.Ptr(fakeapi.Template("leader", "image"))
	}
	c := running(t, 2, 3, requests)
	if got := c.decideSet().Standing.Accelerators; got != nil {
		t.Errorf("%v while all groups are ready", got)
	}
	on("w-0", unready)(c)
	got := map[corev1.ResourceName]int64{}
	for name, quantity := range c.decideSet().Standing.Accelerators {
		got[name] = quantity.Value()
	}
	if diff := cmp.Diff(map[corev1.ResourceName]int64{"nvidia.com/gpu": 16}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// checkStanding checks that each wanted group has one state.
func (w *world) checkStanding(d decided) {
	standing := d.plan.Standing
	if d.group != nil || standing == nil {
		return
	}
	var sum int32
	for _, n := range standing.States {
		sum += n
	}
	if want := *d.set.Set.Spec.Replicas; sum != want {
		w.t.Fatalf("%s: %d groups have a state, %d are wanted: %v", d.what, sum, want, standing.States)
	}
	for _, g := range standing.Unstarted {
		name := identity.LeaderName(d.set.Set.Name, g.Index)
		if leader := byUID(d.seen.owned, g.Leader); leader == nil || leader.GetName() != name {
			w.t.Fatalf("%s: group %d has not started under leader %s, which is %v", d.what, g.Index, g.Leader, leader)
		}
	}
}
