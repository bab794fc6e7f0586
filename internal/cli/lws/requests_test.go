package lws

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// sent counts requests.
type sent int

func (s *sent) RoundTrip(*http.Request) (*http.Response, error) { *s++; return &http.Response{}, nil }

func TestRefusedRequests(t *testing.T) {
	const set, pod = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ns/leaderworkersets/a", "/api/v1/namespaces/ns/pods/a"
	nothing := func(*http.Request) bool { return false }
	for _, tt := range []struct {
		name, method, url string
		allowed           func(*http.Request) bool
		want              sent
	}{
		{"read", "GET", pod, nothing, 1}, {"read", "HEAD", pod, nothing, 1},
		{"read", "POST", pod, nothing, 0}, {"read", "PUT", pod, nothing, 0}, {"read", "PATCH", set, nothing, 0}, {"read", "DELETE", set, nothing, 0},
		{"dry run", "GET", set, IsDryRun, 1}, {"dry run", "POST", set + "?dryRun=All", IsDryRun, 1}, {"dry run", "PATCH", set + "?dryRun=All", IsDryRun, 1},
		{"dry run", "POST", set, IsDryRun, 0}, {"dry run", "PATCH", set + "?dryRun=None", IsDryRun, 0}, {"dry run", "DELETE", set, IsDryRun, 0},
		{"edit", "GET", pod, isPatchOfSet, 1}, {"edit", "PATCH", set, isPatchOfSet, 1}, {"edit", "PATCH", pod, isPatchOfSet, 0},
		{"edit", "PUT", set, isPatchOfSet, 0}, {"edit", "DELETE", set, isPatchOfSet, 0}, {"edit", "POST", set, isPatchOfSet, 0},
	} {
		var got sent
		_, err := guard{&got, tt.allowed}.RoundTrip(httptest.NewRequest(tt.method, "https://host"+tt.url, nil)) //nolint:bodyclose // sent has no body
		if got != tt.want || (err == nil) != (tt.want == 1) {
			t.Errorf("%s: %s %s: sent %d, %v", tt.name, tt.method, tt.url, got, err)
		}
	}
}
