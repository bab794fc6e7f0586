package kinds

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"lockstep.dev/lockstep/test/expect"
)

var jobSet = schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}

// apiServer serves discovery of the given versions of JobSet, and the objects of each.
type apiServer struct{ versions atomic.Value }

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	const root = "/apis/jobset.x-k8s.io"
	versions, _ := s.versions.Load().([]string)
	answers := map[string]any{}
	var listed []any
	for _, v := range versions {
		listed = append(listed, map[string]any{"groupVersion": jobSet.Group + "/" + v, "version": v})
		answers[root+"/"+v] = map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "resources": []any{
			map[string]any{"name": "jobsets/status", "kind": "JobSet"}, map[string]any{"name": "jobsets", "kind": "JobSet"},
		}}
		answers[root+"/"+v+"/jobsets"] = map[string]any{
			"kind": "JobSetList", "apiVersion": jobSet.Group + "/" + v, "metadata": map[string]any{"resourceVersion": "1"},
			"items": []any{map[string]any{"kind": "JobSet", "apiVersion": jobSet.Group + "/" + v, "metadata": map[string]any{"name": v, "namespace": "ns"}}},
		}
	}
	if len(versions) > 0 {
		answers[root] = map[string]any{"kind": "APIGroup", "apiVersion": "v1", "name": jobSet.Group, "versions": listed}
	}
	answer, known := answers[r.URL.Path]
	switch {
	case r.URL.Query().Get("watch") != "":
		w.WriteHeader(http.StatusMethodNotAllowed) // the informer lists again
	case !known:
		w.WriteHeader(http.StatusNotFound)
	default:
		_ = json.NewEncoder(w).Encode(answer)
	}
}

// A kind that comes, moves to another version and goes is watched once at a time, and the
// process stays.
func TestAKindComesAndGoes(t *testing.T) {
	s, turned := &apiServer{}, make(chan []any, 9)
	s.versions.Store([]string(nil))
	kind := &Kind{
		GroupVersionKind: jobSet,
		Setup:            func(cache.SharedIndexInformer) error { return nil },
		Turned:           func(stopped []any) { turned <- stopped },
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	starter := expect.Value(New(&rest.Config{Host: server.URL}, server.Client()))(t)
	starter.Add(kind)
	go func() { _ = starter.Run(t.Context()) }()
	eventually(t, "the kind is known to be absent", kind.IsAbsent)

	serve := func(versions ...string) {
		s.versions.Store(versions)
		starter.defined(cache.ExplicitKey("jobsets.jobset.x-k8s.io"))
	}
	holds := func(name string) func() bool {
		return func() bool {
			informer := kind.Watched()
			return informer != nil && informer.HasSynced() && len(informer.GetStore().ListKeys()) == 1 && informer.GetStore().ListKeys()[0] == "ns/"+name
		}
	}
	serve("v1", "v1alpha2") // the given version goes first
	eventually(t, "its objects are read", holds("v1alpha2"))
	serve("v1")
	eventually(t, "the objects of the other version are read", holds("v1"))
	serve()
	eventually(t, "the kind is absent again", func() bool { return kind.IsAbsent() && kind.Resource().Empty() })
	for _, want := range []int{0, 1, 1} {
		select {
		case stopped := <-turned:
			expect.Equalf(t, want, len(stopped), "the objects with which a watch stopped")
		case <-time.After(5 * time.Second):
			t.Fatal("a turn is not reported")
		}
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		expect.Must(t, !time.Now().After(deadline), "not in time: %s", what)
	}
}
