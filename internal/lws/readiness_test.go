package lws_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
	"lockstep.dev/lockstep/test/fakeapi"
)

// haunted is a set whose name an old leader bears, seen when it was deleted and
// not moving since.
func haunted(now, deleted time.Time) lws.SetSnapshot {
	born, gone := metav1.NewTime(deleted.Add(time.Second)), metav1.NewTime(deleted)
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "new", CreationTimestamp: born}}
	ghost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a-0", UID: "ghost", DeletionTimestamp: &gone, CreationTimestamp: metav1.NewTime(deleted.Add(-time.Hour)),
	}}
	return lws.SetSnapshot{
		Now: now, Set: set,
		Leaders: identity.Claim[*corev1.Pod]{Previous: []*corev1.Pod{ghost}},
		Vigil:   lws.Vigil{Seen: map[types.UID]time.Time{"ghost": deleted}},
	}
}

func TestToldStuckReadsWhatTheStatusSays(t *testing.T) {
	deleted := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		after time.Duration
		stuck bool
	}{
		"leaving": {5 * time.Second, false},
		"stuck":   {2 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := haunted(deleted.Add(tt.after), deleted)
			if lws.ToldStuck(w.Set) {
				t.Error("stuck before anything was told")
			}
			w.Set.Status = writtenStatus(t, lws.DecideSet(w))
			if got := lws.ToldStuck(w.Set); got != tt.stuck {
				t.Errorf("got %v, want %v from %v", got, tt.stuck, w.Set.Status.Conditions)
			}
		})
	}
}

// Surge groups stand in for those that a partition keeps back for as long as it
// does. A rollout is done beside them.
func TestStandWaitsForNoSurgeThatStays(t *testing.T) {
	strategy := func(partition int32) func(*lwsv1.LeaderWorkerSet) {
		return func(set *lwsv1.LeaderWorkerSet) {
			set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{
				Partition: &partition, MaxUnavailable: intstr.FromInt32(1), MaxSurge: intstr.FromInt32(1),
			}
		}
	}
	c := running(t, 3, 1, strategy(2))
	edited(c, fakeapi.Image("image:2"))
	c.settleAll()
	if got := workload.PodsOf(find[*appsv1.StatefulSet](c, "w")); got != 4 {
		t.Fatalf("invalid run: %d leaders, and no surge", got)
	}
	if got := lws.Stand(c.set("w")); got.Surge != 0 || got.Target != 1 || got.TargetReady != 1 {
		t.Errorf("got %+v", got)
	}
	edited(c, strategy(0))
	for round := 0; round < 50 && lws.Stand(c.set("w")).TargetReady < 3; round++ {
		c.do(c.decideSet())
		c.Sync(find[*appsv1.StatefulSet](c, "w"))
		for _, pod := range fakeapi.All[*corev1.Pod](c.Objects) {
			c.Run(pod)
		}
		c.collect()
	}
	if got := lws.Stand(c.set("w")); got.Surge != 1 || got.Target != 3 || got.TargetReady != 3 {
		t.Errorf("with a surge group that is to go: got %+v", got)
	}
}

func writtenStatus(t *testing.T, plan lws.Plan) lwsv1.LeaderWorkerSetStatus {
	t.Helper()
	for _, a := range plan.Actions {
		if write, ok := a.(action.WriteStatus); ok {
			return write.Status
		}
	}
	t.Fatal("the plan writes no status")
	return lwsv1.LeaderWorkerSetStatus{}
}
