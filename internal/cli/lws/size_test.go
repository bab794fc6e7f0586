package lws

import (
	"math"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/fakeapi"
)

type edit = func(*lwsv1.LeaderWorkerSet)

// rolling sets the rolling update to numbers of groups.
func rolling(unavailable, surge, partition int32) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{
			MaxUnavailable: intstr.FromInt32(unavailable), MaxSurge: intstr.FromInt32(surge), Partition: &partition,
		}
	}
}

// asks makes the set and its leader StatefulSet ask for groups that nothing creates.
func asks(s *fakeapi.Server, groups int32, edits ...edit) {
	fakeapi.Edit(s, "w", func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.Replicas = &groups
		for _, edit := range edits {
			edit(set)
		}
	})
	if fakeapi.Find[*appsv1.StatefulSet](s, "w") == nil {
		return
	}
	fakeapi.Edit(s, "w", func(sts *appsv1.StatefulSet) {
		sts.Spec.Replicas = &groups
		sts.Status.ObservedGeneration = sts.Generation
	})
}

// gangOfSet makes all pods of a set one gang.
func gangOfSet(set *lwsv1.LeaderWorkerSet) {
	set.Spec.Scheduling = &lwsv1.Scheduling{SchedulingPolicy: &schedulingv1alpha3.WorkloadCompositePodGroupSchedulingPolicy{
		Gang: &schedulingv1alpha3.WorkloadCompositePodGroupGangSchedulingPolicy{},
	}}
}

// A read and a decision allocate as much for a million groups that do not exist as for a thousand.
func TestASetCostsWhatExists(t *testing.T) {
	const most = math.MaxInt32
	for name, tt := range map[string]struct {
		made   []edit
		change func(*fakeapi.Server, int32)
	}{
		"nothing exists":           {change: func(s *fakeapi.Server, n int32) { asks(s, n) }},
		"three groups exist":       {made: []edit{}, change: func(s *fakeapi.Server, n int32) { asks(s, n) }},
		"groups restart":           {made: []edit{fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart)}, change: func(s *fakeapi.Server, n int32) { asks(s, n) }},
		"a Service for each group": {made: []edit{fakeapi.UniquePerReplica}, change: func(s *fakeapi.Server, n int32) { asks(s, n) }},
		"PVCs": {made: []edit{fakeapi.Volumes(appsv1.DeletePersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType)},
			change: func(s *fakeapi.Server, n int32) { asks(s, n) }},
		"scaled down to one": {made: []edit{}, change: func(s *fakeapi.Server, n int32) {
			asks(s, n)
			fakeapi.Edit(s, "w", func(set *lwsv1.LeaderWorkerSet) { set.Spec.Replicas = fakeapi.Ptr(int32(1)) })
		}},
		"a rollout begins": {made: []edit{}, change: func(s *fakeapi.Server, n int32) { asks(s, n, fakeapi.Image("image:2")) }},
		"a rollout that surges": {made: []edit{rolling(0, 1, 0)}, change: func(s *fakeapi.Server, n int32) {
			asks(s, n, fakeapi.Image("image:2"), rolling(0, most, 0))
		}},
		"a rollout in its middle": {made: []edit{}, change: func(s *fakeapi.Server, n int32) {
			asks(s, n, fakeapi.Image("image:2"), rolling(n/2, 0, 0))
			fakeapi.Edit(s, "w", func(sts *appsv1.StatefulSet) {
				sts.Status.ObservedGeneration = sts.Generation
				sts.Spec.UpdateStrategy.RollingUpdate.Partition = fakeapi.Ptr(n / 2)
			})
		}},
		"a partition beyond all groups": {made: []edit{}, change: func(s *fakeapi.Server, n int32) { asks(s, n, fakeapi.Image("image:2"), rolling(1, 0, most)) }},
		"a leader's name is taken": {made: []edit{}, change: func(s *fakeapi.Server, n int32) {
			asks(s, n)
			fakeapi.Add(s, formerPod("w-7", "w"))
		}},
		"a gang of the whole set": {made: []edit{gangOfSet}, change: func(s *fakeapi.Server, n int32) { asks(s, n) }},
		"groups have keys": {made: []edit{func(set *lwsv1.LeaderWorkerSet) { set.Spec.GroupIdentity = lwsv1.HashGroupIdentity }},
			change: func(s *fakeapi.Server, n int32) { asks(s, n) }},
		"large groups": {made: []edit{}, change: func(s *fakeapi.Server, n int32) {
			asks(s, 3)
			fakeapi.Edit(s, "w", func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.Size = &n })
			for _, pod := range fakeapi.All[*corev1.Pod](s.Objects) {
				fakeapi.Edit(s, pod.Name, func(pod *corev1.Pod) {
					metav1.SetMetaDataAnnotation(&pod.ObjectMeta, lwsv1.SizeAnnotationKey, "1000000")
				})
			}
			fakeapi.Edit(s, "w-0", func(sts *appsv1.StatefulSet) { sts.Spec.Replicas = fakeapi.Ptr(n - 1) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cost := func(n int32) float64 {
				s := serverOf(t, fakeapi.Set("w", 3, 2, tt.made...))
				for range 6 {
					if tt.made != nil {
						advance(t, s, "w")
					}
				}
				tt.change(s, n)
				return testing.AllocsPerRun(2, func() { surveyed(t, sessionOf(s), "w") })
			}
			few := cost(1000)
			for _, n := range []int32{1_000_000, most} {
				if many := cost(n); many > few+few/10+100 {
					t.Errorf("%d groups: %.0f allocations, %.0f for 1000", n, many, few)
				}
			}
		})
	}
}
