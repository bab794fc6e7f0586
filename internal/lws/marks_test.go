package lws_test

import (
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/lwstest"
)

// Whoever takes a label off the workers' StatefulSet, or changes it, has it put back,
// and nothing else: it is no failure, and its pods stay.
func TestLabelsThatWorkersLostArePutBack(t *testing.T) {
	keys := []string{lwsv1.SetNameLabelKey, lwsv1.GroupIndexLabelKey, lwsv1.GroupUniqueHashLabelKey, lwsv1.RevisionKey}
	for _, key := range keys {
		for _, value := range []string{"", "else"} {
			c := running(t, 1, 3)
			before := maps.Clone(find[*appsv1.StatefulSet](c, "w-0").Labels)
			lwstest.Edit(c.FakeStore, "w-0", func(sts *appsv1.StatefulSet) {
				if sts.Labels[key] = value; value == "" {
					delete(sts.Labels, key)
				}
				sts.Labels["theirs"] = "stays"
			})
			plan := c.decideGroup("w-0")
			if got := spelled(plan); len(got) != 1 || got[0] != "relabel statefulset w-0" {
				t.Fatalf("%s=%q: %v", key, value, got)
			}
			c.do(plan)
			before["theirs"] = "stays"
			if now := find[*appsv1.StatefulSet](c, "w-0").Labels; !maps.Equal(now, before) {
				t.Errorf("%s=%q: labels %v, want %v", key, value, now, before)
			}
			if got := spelled(c.decideGroup("w-0")); len(got) != 0 {
				t.Errorf("%s=%q: then %v", key, value, got)
			}
		}
	}
}

// A StatefulSet from before a label was given out has it put nowhere: nobody took it.
func TestLabelsThatPodsNeverBoreAreNotPutOnWorkers(t *testing.T) {
	c := running(t, 1, 2)
	lwstest.Edit(c.FakeStore, "w-0", func(sts *appsv1.StatefulSet) {
		delete(sts.Labels, lwsv1.RevisionKey)
		delete(sts.Spec.Template.Labels, lwsv1.RevisionKey)
	})
	if got := spelled(c.decideGroup("w-0")); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
