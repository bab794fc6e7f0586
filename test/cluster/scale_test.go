package cluster

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// The HorizontalPodAutoscaler controller scales a set by the metrics of the pods that the status
// selects. A CRD stands in for the metrics server.
func TestAnAutoscalerDrivesTheScale(t *testing.T) {
	s := newScene(t)
	s.define(metricsGroup, "v1beta1", "PodMetrics", "pods")
	set := s.settled(s.newSet("a", 2, 3, imageA, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Requests =
			corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
		set.Spec.RolloutStrategy.RollingUpdateConfiguration.MaxUnavailable = intstr.FromString("50%")
	}))
	first := s.leaders(set)
	same(t, "groups that may be away", 1, s.mayBeAway(set))

	s.use(set, "180m")
	scaler := s.lendManifest("autoscaler")[0]
	set = s.awaitReplicas(set, 4, scaler)
	same(t, "groups that may be away", 2, s.mayBeAway(set))
	for name, id := range first {
		same(t, "uid of leader "+name, id, s.leaders(set)[name])
	}

	s.use(set, "40m")
	set = s.awaitReplicas(set, 2, scaler)
	same(t, "groups that may be away", 1, s.mayBeAway(set))
	same(t, "leaders after scaling up and down", first, s.leaders(set))
	s.wantBorn(set.UID, 0, births{Pods: 12, StatefulSets: 5, Services: 1, Revisions: 1})

	asked := s.metricsAsked()
	if got := asked[set.Status.HPAPodSelector]; !got || len(asked) != 1 {
		t.Errorf("metrics were asked for with %v, want leaders alone with %q", asked, set.Status.HPAPodSelector)
	}
}

// awaitReplicas waits until the autoscaler has set the replicas and the set is settled.
func (s *scene) awaitReplicas(set *lwsv1.LeaderWorkerSet, replicas int32, scaler *unstructured.Unstructured) *lwsv1.LeaderWorkerSet {
	var now *lwsv1.LeaderWorkerSet
	s.Eventually(fmt.Sprintf("the autoscaler asks for %d groups", replicas), func() error {
		now = s.Set(set.Name)
		if have := *now.Spec.Replicas; have != replicas {
			err := s.Read(scaler)
			return errors.Join(err, fmt.Errorf("%d groups are wanted; the autoscaler says %+v", have, scaler.Object["status"]))
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
	return s.StatefulSet(set.Name).Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue()
}

const metricsGroup = "metrics.k8s.io"

// use gives every pod of a set the same usage.
func (s *scene) use(set *lwsv1.LeaderWorkerSet, cpu string) {
	for _, pod := range s.podsOf(set) {
		metrics := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": metricsGroup + "/v1beta1", "kind": "PodMetrics",
			"timestamp":  time.Now().Add(time.Hour).UTC().Format(time.RFC3339), // later than the pod is ready
			"window":     "1s",
			"containers": []any{map[string]any{"name": "serve", "usage": map[string]any{"cpu": cpu}}},
		}}
		metrics.SetNamespace(pod.Namespace)
		metrics.SetName(pod.Name)
		metrics.SetLabels(pod.Labels)
		s.Eventually("the usage of "+pod.Name+" is written", func() error {
			return s.Client.Apply(s.Context(), client.ApplyConfigurationFromUnstructured(metrics), client.FieldOwner("drill"))
		})
	}
}

// metricsAsked returns the selectors that the metrics of pods were asked for with.
func (s *scene) metricsAsked() map[string]bool {
	s.Check("read the audit log", bed.Audit.Sync())
	asked := map[string]bool{}
	for _, r := range bed.Audit.Kept(s.Audited, asksMetrics) {
		address, err := url.Parse(r.URI)
		s.Check("read an address", err)
		asked[address.Query().Get("labelSelector")] = true
	}
	return asked
}

// asksMetrics reports whether an autoscaler read the metrics of pods.
func asksMetrics(r drill.Request) bool {
	return r.Verb == "list" && strings.HasPrefix(r.URI, "/apis/"+metricsGroup+"/") && strings.HasPrefix(r.Agent, "kube-controller-manager/") &&
		strings.Contains(r.Agent, "horizontal-pod-autoscaler")
}
