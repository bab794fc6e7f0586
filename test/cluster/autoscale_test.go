package cluster

import (
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// asksTenth gives every pod a request of a tenth of a processor.
func asksTenth(set *lwsv1.LeaderWorkerSet) {
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Requests =
		corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
}

// halfAway allows half of the groups to be unavailable during an update.
func halfAway(set *lwsv1.LeaderWorkerSet) {
	set.Spec.RolloutStrategy.RollingUpdateConfiguration.MaxUnavailable = intstr.FromString("50%")
}

// autoscaler returns a HorizontalPodAutoscaler that keeps 2 to 4 groups, without stabilization.
func autoscaler(set *lwsv1.LeaderWorkerSet) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: lwsv1.GroupVersion.String(), Kind: "LeaderWorkerSet", Name: set.Name},
			MinReplicas:    new(int32(2)),
			MaxReplicas:    4,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name:   corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(100))},
			}}},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(0))},
			},
		},
	}
}

// The HorizontalPodAutoscaler controller scales a set by the metrics of the pods that the status
// selects.
func TestAnAutoscalerDrivesTheScale(t *testing.T) {
	s := newScene(t)
	meter := s.newMeter()
	set := s.settled(s.newSet("a", 2, 3, imageA, asksTenth, halfAway))
	first := s.leaders(set)
	same(t, "groups that may be away", 1, s.mayBeAway(set))

	meter.used.Store(180)
	scaler := autoscaler(set)
	s.create(scaler)
	set = s.awaitReplicas(set, 4, scaler)
	same(t, "groups that may be away", 2, s.mayBeAway(set))
	for name, id := range first {
		same(t, "uid of leader "+name, id, s.leaders(set)[name])
	}

	meter.used.Store(40)
	set = s.awaitReplicas(set, 2, scaler)
	same(t, "groups that may be away", 1, s.mayBeAway(set))
	same(t, "leaders after scaling up and down", first, s.leaders(set))
	s.wantBorn(set.UID, 0, births{Pods: 12, StatefulSets: 5, Services: 1, Revisions: 1})

	asked := meter.selectors()
	if got := asked[set.Status.HPAPodSelector]; got != 4 || len(asked) != 1 {
		t.Errorf("metrics were asked for with %v, want leaders alone with %q", asked, set.Status.HPAPodSelector)
	}
}

// awaitReplicas waits until the autoscaler has set the replicas and the set is settled.
func (s *scene) awaitReplicas(set *lwsv1.LeaderWorkerSet, replicas int32, scaler *autoscalingv2.HorizontalPodAutoscaler) *lwsv1.LeaderWorkerSet {
	s.Helper()
	var now *lwsv1.LeaderWorkerSet
	s.eventually(fmt.Sprintf("the autoscaler asks for %d groups", replicas), func() error {
		now, _ = find[*lwsv1.LeaderWorkerSet](s.recorder, set.Name)
		if have := *now.Spec.Replicas; have != replicas {
			err := s.client.Get(s.Context(), keyOf(scaler), scaler)
			return errors.Join(err, fmt.Errorf("%d groups are wanted; the autoscaler says %+v", have, scaler.Status.Conditions))
		}
		return nil
	})
	return s.awaitSettled(now)
}

// leaders returns the UIDs of the leaders by name.
func (s *scene) leaders(set *lwsv1.LeaderWorkerSet) map[string]types.UID {
	all := map[string]types.UID{}
	for _, pod := range s.podsOf(set) {
		if pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" {
			all[pod.Name] = pod.UID
		}
	}
	return all
}

// mayBeAway returns the maxUnavailable of the leader StatefulSet.
func (s *scene) mayBeAway(set *lwsv1.LeaderWorkerSet) int {
	sts, ok := find[*appsv1.StatefulSet](s.recorder, set.Name)
	if !ok {
		return 0
	}
	return sts.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue()
}
