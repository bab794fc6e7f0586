package pvccache

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A client makes of a watch that nobody answered one that is over: whoever takes that for
// an answer, and asks for the next, never hears that there is no API server.
func TestPodsAreLostWhileNobodyAnswersThoughConnectionsAreTaken(t *testing.T) {
	var isAway atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isAway.Load() {
			panic(http.ErrAbortHandler) // as a load balancer that has nobody behind it
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`))
			return
		}
		if r.URL.Query().Get("sendInitialEvents") != "" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`))
			return
		}
		w.(http.Flusher).Flush()
		for !isAway.Load() && r.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	pods := NewPods()
	go pods.Run(t.Context(), client.CoreV1().Pods(""))
	if err := pods.AwaitSync(t.Context()); err != nil || pods.IsLost() {
		t.Fatalf("there is an API server, and pods are lost: %v", err)
	}
	isAway.Store(true)
	for until := time.Now().Add(5 * time.Second); !pods.IsLost(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("pods are not lost, and nobody has answered for long")
		}
	}
	for until := time.Now().Add(4 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if !pods.IsLost() {
			t.Fatal("pods are there again, and nobody has answered")
		}
	}
}
