package amend

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// sent counts requests.
type sent int

func (s *sent) RoundTrip(*http.Request) (*http.Response, error) { *s++; return &http.Response{}, nil }

func TestOnlyPatchesOfSetsAreSent(t *testing.T) {
	const set, pod = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ns/leaderworkersets/a", "/api/v1/namespaces/ns/pods/a"
	for _, tt := range []struct {
		method, path string
		want         sent
	}{{"GET", pod, 1}, {"PATCH", set, 1}, {"PATCH", pod, 0}, {"PUT", set, 0}, {"DELETE", set, 0}, {"POST", set, 0}} {
		var got sent
		if _, err := (patcher{&got}).RoundTrip(httptest.NewRequest(tt.method, "https://host"+tt.path, nil)); got != tt.want || (err == nil) != (tt.want == 1) {
			t.Errorf("%s %s: sent %d, %v", tt.method, tt.path, got, err)
		}
	}
}
