package lws_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	lwsgroup "lockstep.dev/lockstep/internal/lws/group"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/test/fakeapi"
)

// Nothing is written for a set with what this version lacks but one condition, once, with its event.
func TestASetWithUnknownFieldsIsLeftAlone(t *testing.T) {
	c := running(t, 2, 2)
	gone[StatefulSet]("w-0")(c)
	gone[Pod]("w-0-1")(c)
	set := find[Set](c, "w").DeepCopy()
	w := lws.SetSnapshot{Now: time.Now(), Set: set, Beyond: []string{`spec.groupIdentity="Hash"`}}
	before := set.Status.DeepCopy()

	plan := lwsset.Decide(w)
	write := one[action.WriteStatus](t, plan)
	if told := meta.FindStatusCondition(write.Status.Conditions, lws.CodeUnsupported); told == nil || told.Status != metav1.ConditionTrue || told.Reason != "UnknownFields" {
		t.Errorf("condition %+v", told)
	}
	if events := write.Tell.Done; len(plan.Actions) != 1 || len(events) != 1 || events[0].Reason != lws.CodeUnsupported || !events[0].Warning {
		t.Errorf("%d actions, events %+v", len(plan.Actions), events)
	}
	if got := kstatus(write.Status, set.Generation); got != failed {
		t.Errorf("it is %s", got)
	}
	after := write.Status.DeepCopy()
	isNew := func(c metav1.Condition) bool {
		return c.Type == lws.CodeUnsupported || slices.Contains(forTools, c.Type)
	}
	before.Conditions, after.Conditions = slices.DeleteFunc(before.Conditions, isNew), slices.DeleteFunc(after.Conditions, isNew)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the rest of the status (-want +got)\n%s", diff)
	}

	set.Status = write.Status
	if again := lwsset.Decide(w); len(again.Actions) > 0 || !again.IsUnsupported() {
		t.Errorf("once more: %v", again.Actions)
	}
	set.Generation++
	if write := one[action.WriteStatus](t, lwsset.Decide(w)); write.Status.ObservedGeneration != set.Generation || len(write.Tell.Done) > 0 {
		t.Errorf("another generation: %+v", write)
	}
	if plan := lwsgroup.Decide(lws.GroupSnapshot{Now: w.Now, Set: set, Beyond: w.Beyond}); len(plan.Actions) > 0 || !plan.IsUnsupported() {
		t.Errorf("its group: %v", plan.Actions)
	}
	retained := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w-0", Finalizers: []string{lwsv1.GroupRestartBudgetFinalizer}, DeletionTimestamp: &metav1.Time{Time: w.Now}}}
	if plan := lwsgroup.Decide(lws.GroupSnapshot{Now: w.Now, Set: set, Beyond: w.Beyond, Kept: []*corev1.Pod{retained}}); len(plan.Actions) > 0 {
		t.Errorf("its group with a retained pod: %v", plan.Actions)
	}
	w.Set.DeletionTimestamp = &metav1.Time{Time: w.Now}
	if plan := lwsset.Decide(w); len(plan.Actions)+len(plan.Waits) > 0 {
		t.Errorf("a terminating set: %+v", plan)
	}
}

// A set that asks for what no rule meets yet is left alone, whether or not it ran before: no leader StatefulSet is
// created, and nothing is written to what it has.
func TestWhatNoRuleMeetsIsLeftAlone(t *testing.T) {
	unmet := func(set Set) { set.Spec.Scheduling = &lwsv1.Scheduling{Replica: &lwsv1.ReplicaScheduling{}} }
	fresh, ran := newCluster(t), running(t, 2, 2)
	fakeapi.Add(fresh.Server, fakeapi.Set("w", 2, 2, unmet))
	then(user(unmet), user(fakeapi.Image("image:2")), gone[Pod]("w-0-1"))(ran)
	for name, c := range map[string]*cluster{"fresh": fresh, "ran": ran} {
		before := fakeapi.All[StatefulSet](c.Objects)
		write := one[action.WriteStatus](t, c.decideSet())
		if told := meta.FindStatusCondition(write.Status.Conditions, lws.CodeUnsupported); told == nil || told.Status != metav1.ConditionTrue {
			t.Errorf("%s: condition %+v", name, told)
		}
		for range 3 {
			c.reconcileSet()
			for _, leader := range []string{"w-0", "w-1"} {
				if plan := c.decideGroup(leader); len(plan.Actions) > 0 {
					t.Errorf("%s: written to group %s: %v", name, leader, spelled(plan))
				}
			}
		}
		if plan := c.decideSet(); len(plan.Actions) > 0 || !plan.IsUnsupported() {
			t.Errorf("%s: once told: %v", name, spelled(plan))
		}
		if diff := cmp.Diff(before, fakeapi.All[StatefulSet](c.Objects)); diff != "" {
			t.Errorf("%s: StatefulSets (-before +after)\n%s", name, diff)
		}
	}
}
