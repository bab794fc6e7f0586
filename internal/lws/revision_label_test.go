package lws_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/lwstest"
)

// What tells of a revision may be spoilt. That gives nobody up, and makes nobody to
// stand in for them.
func TestAPausedSetWhoseLeadersLostTheirRevisionLabelDoesNotSurge(t *testing.T) {
	label := lwsv1.RevisionKey
	tests := []struct {
		name  string
		spoil func(*appsv1.StatefulSet)
	}{
		{"gone", func(sts *appsv1.StatefulSet) { delete(sts.Labels, label) }},
		{"gone from the template, too", func(sts *appsv1.StatefulSet) {
			delete(sts.Labels, label)
			delete(sts.Spec.Template.Labels, label)
			sts.Generation++
		}},
		{"another", func(sts *appsv1.StatefulSet) { sts.Labels[label] = "other" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := running(t, 3, 2, func(set *lwsv1.LeaderWorkerSet) {
				set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{
					MaxUnavailable: intstr.FromInt32(1), MaxSurge: intstr.FromInt32(2),
				}
			})
			pause(c)
			edited(c, lwstest.Image("image:2"))
			c.settleAll()
			lwstest.Edit(c.FakeStore, "w", tt.spoil)
			for range 5 {
				c.do(c.decideSet())
				if got := lws.PodsOf(find[*appsv1.StatefulSet](c, "w")); got != 3 {
					t.Fatalf("%d leaders are asked for", got)
				}
			}
		})
	}
}

// Nothing is rolled for a label.
func TestAStatefulSetThatLostItsRevisionLabelGetsItBack(t *testing.T) {
	c := running(t, 3, 2)
	key := find[*appsv1.StatefulSet](c, "w").Labels[lwsv1.RevisionKey]
	lwstest.Edit(c.FakeStore, "w", func(sts *appsv1.StatefulSet) { delete(sts.Labels, lwsv1.RevisionKey) })
	c.do(c.decideSet())
	sts := find[*appsv1.StatefulSet](c, "w")
	if sts.Labels[lwsv1.RevisionKey] != key || partition(sts) != 0 {
		t.Errorf("got revision %q, partition %d", sts.Labels[lwsv1.RevisionKey], partition(sts))
	}
	if plan := c.decideSet(); len(plan.Actions) > 0 {
		t.Errorf("written again: %s", spelled(plan))
	}
}
