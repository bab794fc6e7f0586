package pvccache

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"lockstep.dev/lockstep/internal/pvc"
)

// A workload goes on holding its claims when the version that its kind is described by
// is not served any more.
func TestAKindIsReadInAnyVersionThatIsServed(t *testing.T) {
	const (
		v1alpha2 = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"jobset.x-k8s.io/v1alpha2","resources":[{"name":"jobsets","kind":"JobSet"},{"name":"jobsets/status","kind":"JobSet"}]}`
		v1       = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"jobset.x-k8s.io/v1","resources":[{"name":"jobsets","kind":"JobSet"}]}`
		others   = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"jobset.x-k8s.io/v1","resources":[{"name":"queues","kind":"Queue"}]}`
		group    = `{"kind":"APIGroup","apiVersion":"v1","name":"jobset.x-k8s.io","versions":[{"groupVersion":"jobset.x-k8s.io/v1","version":"v1"},{"groupVersion":"jobset.x-k8s.io/v1alpha2","version":"v1alpha2"}]}`
		root     = "/apis/jobset.x-k8s.io"
	)
	for name, tt := range map[string]struct {
		answers map[string]string
		want    string
		fails   bool
	}{
		"as described":              {map[string]string{root: group, root + "/v1alpha2": v1alpha2, root + "/v1": v1}, "v1alpha2", false},
		"in another version":        {map[string]string{root: group, root + "/v1": v1}, "v1", false},
		"the group without it":      {map[string]string{root: group, root + "/v1": others}, "", false},
		"no such group":             {nil, "", false},
		"the group does not answer": {map[string]string{root: "?"}, "", true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer, known := tt.answers[r.URL.Path]
			w.Header().Set("Content-Type", "application/json")
			switch {
			case !known:
				w.WriteHeader(http.StatusNotFound)
			case answer == "?":
				w.WriteHeader(http.StatusForbidden)
			default:
				_, _ = w.Write([]byte(answer))
			}
		}))
		config := &rest.Config{Host: server.URL}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		kind := newForeignKind(nil, client.Discovery(), (*dynamic.DynamicClient)(nil), pvc.JobSet.GroupVersionKind, ofKind(pvc.JobSet))
		got, err := kind.served(t.Context())
		if got.Version != tt.want || (err != nil) != tt.fails || tt.want != "" && got.Resource != "jobsets" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		server.Close()
	}
}
