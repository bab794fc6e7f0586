package bundle

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A port that cannot be forwarded, as where no kubelet runs, is an error. The report then lacks metrics alone.
func TestAPortThatCannotBeForwardedIsAnError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{Request: Request{Config: config}, kube: kube}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "operator-0"}}
	if _, end, err := c.forward(t.Context(), pod, 8443); err == nil || end != nil {
		t.Errorf("got %v", err)
	}
}
