package lws_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/test/fakeapi"
)

// An operator that has lost its lease may still carry out what it decided before the
// rollout was undone: leaders that are what they should be went, all at once.
func TestALateOperatorReplacesNoLeaderThatAnotherTemplateKeeps(t *testing.T) {
	c := newCluster(t)
	c.WithoutMaxUnavailable = true
	fakeapi.Add(c.Server, fakeapi.Set("w", 3, 1, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{MaxUnavailable: intstr.FromInt32(3)}
	}))
	c.settle(groupNames...)
	image(c, "image:2")
	for range 2 {
		c.pass(time.Minute)
		c.do(c.decideSet())
		fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) {
			sts.Status.ObservedGeneration, sts.Status.UpdateRevision = sts.Generation, "next"
		})
	}
	late := of[action.Delete](c.decideSet())
	if len(late) != 3 {
		t.Fatalf("invalid: %v", spelled(c.decideSet()))
	}
	image(c, "image:1")
	c.do(c.decideSet())
	for _, a := range late {
		if err := c.Do(a); err == nil {
			t.Errorf("%s is deleted", a.Target())
		}
	}
}
