package scrape

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"lockstep.dev/lockstep/test/expect"
)

// apiServer knows two tokens, and lets one of them read one path.
type apiServer struct {
	asked []string
	last  authorizationv1.SubjectAccessReviewSpec
	down  bool
}

func (r *apiServer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	kind := request.URL.Path[strings.LastIndex(request.URL.Path, "/")+1:]
	r.asked = append(r.asked, kind)
	if r.down {
		http.Error(w, "etcd is away", http.StatusInternalServerError)
		return
	}
	body, _ := io.ReadAll(request.Body)
	w.Header().Set("Content-Type", "application/json")
	switch kind {
	case "tokenreviews":
		var review authenticationv1.TokenReview
		_ = json.Unmarshal(body, &review)
		name, known := map[string]string{"secret": "prometheus", "other": "mallory"}[review.Spec.Token]
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: known, User: authenticationv1.UserInfo{
			Username: name, UID: "u", Groups: []string{"scrapers"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
		}}
		_ = json.NewEncoder(w).Encode(review)
	case "subjectaccessreviews":
		var review authorizationv1.SubjectAccessReview
		_ = json.Unmarshal(body, &review)
		r.last = review.Spec
		review.Status.Allowed = review.Spec.User == "prometheus" && review.Spec.NonResourceAttributes.Path == "/metrics"
		_ = json.NewEncoder(w).Encode(review)
	}
}

// guarded returns metrics behind the filter, and the API server that reviews clients.
func guarded(t *testing.T) (http.Handler, *apiServer) {
	t.Helper()
	api := &apiServer{}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "figures") })
	handler, err := Readers(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, logr.Discard(), metrics)
	expect.OK(t, err)
	return handler, api
}

func get(handler http.Handler, path, authorization string) (int, string) {
	request := httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Code, recorder.Body.String()
}

func TestOnlyPermittedClientsReadMetrics(t *testing.T) {
	for name, c := range map[string]struct {
		path, authorization string
		status              int
		text                string
		asked               []string
	}{
		"without credentials":    {"/metrics", "", 401, "Unauthorized", nil},
		"by name and password":   {"/metrics", "Basic c2VjcmV0", 401, "Unauthorized", nil},
		"with no token":          {"/metrics", "Bearer  ", 401, "Unauthorized", nil},
		"with a token unknown":   {"/metrics", "Bearer guess", 401, "Unauthorized", []string{"tokenreviews"}},
		"known, not allowed":     {"/metrics", "Bearer other", 403, "mallory may not get /metrics", []string{"tokenreviews", "subjectaccessreviews"}},
		"allowed":                {"/metrics", "bearer secret", 200, "figures", []string{"tokenreviews", "subjectaccessreviews"}},
		"allowed something else": {"/debug", "Bearer secret", 403, "prometheus may not get /debug", []string{"tokenreviews", "subjectaccessreviews"}},
	} {
		t.Run(name, func(t *testing.T) {
			handler, api := guarded(t)
			status, text := get(handler, c.path, c.authorization)
			expect.That(t, status == c.status && strings.Contains(text, c.text),
				"%d %q, want %d %q", status, text, c.status, c.text)
			expect.Equalf(t, c.asked, api.asked, "asked")
			if c.status != 200 {
				return
			}
			want := authorizationv1.SubjectAccessReviewSpec{
				User: "prometheus", UID: "u", Groups: []string{"scrapers"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
				NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
			}
			expect.Equalf(t, want, api.last, "reviewed")
		})
	}
}

// If the API server does not answer, no client reads, and the next request asks again.
func TestErrorsOfTheAPIServerRefuse(t *testing.T) {
	handler, api := guarded(t)
	api.down = true
	if status, text := get(handler, "/metrics", "Bearer secret"); status != http.StatusInternalServerError || strings.Contains(text, "figures") {
		t.Errorf("%d %q", status, text)
	}
	api.down = false
	status, _ := get(handler, "/metrics", "Bearer secret")
	expect.Equalf(t, http.StatusOK, status, "after the API server came back")
}

func TestUnusableConfiguration(t *testing.T) {
	_, err := Readers(&rest.Config{Host: "::no host::"}, logr.Discard(), nil)
	expect.That(t, err != nil && errors.Unwrap(err) != nil, "error %v", err)
}

// Guessed tokens cost the API server few reviews. Meanwhile a client that read metrics before reads them still.
func TestGuessedTokensAreRarelyReviewed(t *testing.T) {
	handler, api := guarded(t)
	status, _ := get(handler, "/metrics", "Bearer secret")
	expect.Equalf(t, http.StatusOK, status, "before the storm")
	api.asked = nil
	for i := range 1000 {
		status, _ := get(handler, "/metrics", fmt.Sprintf("Bearer guess-%d", i))
		expect.Must(t, (i >= guesses-1 || status == http.StatusUnauthorized) && status != http.StatusOK,
			"guess %d: %d", i, status)
	}
	expect.That(t, len(api.asked) <= 100, "%d reviews of 1000 guesses, at most 100 are expected", len(api.asked))
	status, text := get(handler, "/metrics", "Bearer a-new-one")
	expect.Equalf(t, http.StatusTooManyRequests, status, "a guess in the storm: %q", text)
	status, _ = get(handler, "/metrics", "Bearer secret")
	expect.Equalf(t, http.StatusOK, status, "for a reader in the storm")
	// A known token is reviewed each time: knowing it grants nothing.
	api.down = true
	status, _ = get(handler, "/metrics", "Bearer secret")
	expect.Equalf(t, http.StatusInternalServerError, status, "for a reader that the API server does not review")
}
