package lwscache_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/fakeapi"
)

// A large set that took more than ten seconds to come was probed with every look at
// every one of its groups: ten requests for each group, most of the operator's own.
func TestAStatefulSetThatIsStillMakingPodsIsNotProbed(t *testing.T) {
	e, _, _ := chained(t)
	fakeapi.Edit(e.Server, "w", func(sts *appsv1.StatefulSet) {
		sts.Generation++
		sts.Spec.Replicas, sts.Status.Replicas = fakeapi.Ptr[int32](100), 0
	})
	for range 5 { // its controller has not got to it
		e.Now = e.Now.Add(time.Minute)
		e.set("w")
	}
	for pods := range int32(20) {
		fakeapi.Edit(e.Server, "w", func(sts *appsv1.StatefulSet) {
			sts.Status.ObservedGeneration, sts.Status.Replicas = sts.Generation, pods
		})
		e.Now = e.Now.Add(10*time.Second - 1)
		e.set("w")
	}
	if e.live.Reads != 0 {
		t.Errorf("%d live reads", e.live.Reads)
	}
}

// A set may ask for two thousand million pods a group. What is read of it must not grow
// with that number: the operator serves other sets, too.
func TestAGroupOfAnySizeCostsWhatItHas(t *testing.T) {
	e, _, _ := chained(t)
	leader := fakeapi.Edit(e.Server, "w-0", func(*corev1.Pod) {})
	workers := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: fakeapi.Namespace, Name: "w-0", Generation: 1, Labels: map[string]string{lwsv1.SetNameLabelKey: "w"},
	}}
	fakeapi.OwnedBy(workers, "v1", identity.RefOf(identity.KindPod, leader))
	fakeapi.Add(e.Server, workers)
	cost := func(pods int32) float64 {
		fakeapi.Edit(e.Server, "w-0", func(sts *appsv1.StatefulSet) { sts.Spec.Replicas, sts.Status.ObservedGeneration = &pods, 1 })
		return testing.AllocsPerRun(3, func() {
			e.Now = e.Now.Add(time.Hour) // every name is due to be looked for
			if e.group("w-0").Workers.Member() == nil {
				t.Fatal("invalid run: the group has no workers")
			}
		})
	}
	few, many := cost(10), cost(100_000)
	if many > few+10 {
		t.Errorf("%g allocations for a look at a group of 100,000 pods, %g at one of 10", many, few)
	}
}
