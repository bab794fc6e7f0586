package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
	s.Helper()
	m := &meter{t: s.T, asked: map[string]int{}}
	server := httptest.NewTLSServer(m)
	s.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	s.check("read the address", err)
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	s.check("read the port", err)
	s.create(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "meter"},
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
			"service":               map[string]any{"namespace": s.namespace, "name": "meter", "port": port},
		},
	}}
	s.create(api)
	s.Cleanup(func() { // before the server goes: a group that nobody serves keeps namespaces from ending
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.client.Delete(ctx, api); err != nil {
			s.Logf("take the metrics away: %v", err)
		}
	})
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
	if err := bed.client.List(r.Context(), pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
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
	all := map[string]int{}
	for text, count := range m.asked {
		all[text] = count
	}
	return all
}
