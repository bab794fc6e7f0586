package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	s.Create(scaler)
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
	var now *lwsv1.LeaderWorkerSet
	s.Eventually(fmt.Sprintf("the autoscaler asks for %d groups", replicas), func() error {
		now = s.Set(set.Name)
		if have := *now.Spec.Replicas; have != replicas {
			err := s.Read(scaler)
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
	return s.StatefulSet(set.Name).Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue()
}

const (
	metricsGroup   = "metrics.k8s.io"
	metricsVersion = metricsGroup + "/v1beta1"
)

// meter is an API server of resource metrics. Every pod has the usage that the test sets.
type meter struct {
	t *testing.T
	// used is the usage of each pod, in thousandths of a processor.
	used atomic.Int64

	mu    sync.Mutex
	asked map[string]int // pods told of, by the selector asked with
}

// newMeter serves metrics on loopback until the test ends. The API server reaches it through a Service
// that names this machine.
func (s *scene) newMeter() *meter {
	m := &meter{t: s.T, asked: map[string]int{}}
	server := httptest.NewTLSServer(m)
	s.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	s.Check("read the address", err)
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	s.Check("read the port", err)
	s.Create(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "meter"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "localhost",
			Ports: []corev1.ServicePort{{Port: int32(port)}},
		},
	})
	api := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1beta1." + metricsGroup},
		"spec": map[string]any{
			"group": metricsGroup, "version": "v1beta1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"namespace": s.Namespace, "name": "meter", "port": port},
		},
	}}
	s.Lend(api) // it goes before the server: a group that nothing serves keeps namespaces from ending
	return m
}

// ServeHTTP implements http.Handler.
func (m *meter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	root := "/apis/" + metricsVersion
	switch namespace, ok := strings.CutPrefix(r.URL.Path, root+"/namespaces/"); {
	case r.URL.Path == root:
		m.answer(w, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: metricsVersion,
			APIResources: []metav1.APIResource{{Name: "pods", Namespaced: true, Kind: "PodMetrics", Verbs: []string{"get", "list"}}},
		})
	case ok && strings.HasSuffix(namespace, "/pods"):
		m.list(w, r, strings.TrimSuffix(namespace, "/pods"))
	default:
		http.NotFound(w, r)
	}
}

// list returns the usage of the selected pods.
func (m *meter) list(w http.ResponseWriter, r *http.Request, namespace string) {
	text := r.URL.Query().Get("labelSelector")
	selector, err := labels.Parse(text)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	pods := &corev1.PodList{}
	if err := bed.Client.List(r.Context(), pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	items := []any{}
	for i := range pods.Items {
		items = append(items, map[string]any{
			"metadata":   map[string]any{"namespace": namespace, "name": pods.Items[i].Name},
			"timestamp":  time.Now().UTC().Format(time.RFC3339),
			"window":     "1s",
			"containers": []any{map[string]any{"name": "serve", "usage": map[string]any{"cpu": fmt.Sprintf("%dm", m.used.Load())}}},
		})
	}
	m.mu.Lock()
	m.asked[text] = max(m.asked[text], len(items))
	m.mu.Unlock()
	m.answer(w, map[string]any{"apiVersion": metricsVersion, "kind": "PodMetricsList", "metadata": map[string]any{}, "items": items})
}

func (m *meter) answer(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(what) // who hung up does not want to know
}

// selectors returns how many pods each selector selected at most.
func (m *meter) selectors() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.asked)
}
