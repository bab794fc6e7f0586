package lws_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// The longer groups trickle in, the less often their counts alone are written: after two
// seconds at first, after eight later on.
func TestCountsAloneAreWrittenEverMoreSeldom(t *testing.T) {
	const groups = 60
	c := running(t, groups, 1)
	for i := range groups {
		fakeapi.Edit(c.Server, identity.LeaderName("w", i), func(pod *corev1.Pod) { pod.Status.Conditions = nil })
	}
	c.do(c.decideSet())
	var written []int
	for second := 1; second < 50; second++ {
		c.pass(time.Second)
		fakeapi.Edit(c.Server, identity.LeaderName("w", second), fakeapi.Up)
		plan := c.decideSet()
		if len(plan.Actions) > 0 {
			written = append(written, second)
		}
		c.do(plan)
	}
	want := []int{2, 4, 8, 16, 24, 32, 40, 48}
	if len(written) != len(want) {
		t.Fatalf("written after %v seconds, want %v", written, want)
	}
	for i := range want {
		if written[i] != want[i] {
			t.Errorf("written after %v seconds, want %v", written, want)
		}
	}
}

// Who waits for the last leader to come does not wait for the pace.
func TestACountThatArrivesIsWrittenAtOnce(t *testing.T) {
	c := running(t, 3, 1)
	come := func(leaders int32) lws.Plan {
		fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { sts.Status.Replicas = leaders })
		return c.decideSet()
	}
	c.pass(time.Minute)
	c.do(come(1))
	if plan := come(2); len(plan.Actions) > 0 {
		t.Fatalf("two of three: %s", spelled(plan))
	}
	if write := one[action.WriteStatus](t, come(3)); write.Status.Replicas != 3 {
		t.Errorf("got %+v", write.Status)
	}
}

// The record of a group that is reported ready follows within two seconds.
func TestTheRecordOfAReadyGroupIsWrittenSoon(t *testing.T) {
	c := running(t, 3, 2, onRestart)
	c.pass(time.Minute) // by now counts would wait for eight seconds
	fakeapi.Edit(c.Server, "w", func(sts *appsv1.StatefulSet) { sts.Status.Replicas = 1 })
	c.do(c.decideSet())
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) { set.Status.Started = set.Status.Started[:2] })
	c.pass(time.Second)
	if plan := c.decideSet(); len(plan.Actions) > 0 {
		t.Errorf("a second later: %s", spelled(plan))
	}
	c.pass(time.Second)
	if write := one[action.WriteStatus](t, c.decideSet()); len(write.Status.Started) != 3 {
		t.Errorf("%d groups are recorded", len(write.Status.Started))
	}
}
