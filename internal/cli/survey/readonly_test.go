package survey

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func TestWritesNeverLeaveTheProcess(t *testing.T) {
	var arrived []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived = append(arrived, r.Method)
	}))
	defer server.Close()
	web, err := rest.HTTPClientFor(ReadOnly(&rest.Config{Host: server.URL, BearerToken: "t"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodGet} {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := web.Do(request)
		if method == http.MethodGet {
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "only reads") {
			t.Errorf("%s: got %v", method, err)
		}
	}
	if !slices.Equal(arrived, []string{http.MethodGet}) {
		t.Errorf("the server got %v", arrived)
	}
}
