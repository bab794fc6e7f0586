package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// An API server may accept connections and never answer.
func TestTimeoutIncludesTheFirstRequest(t *testing.T) {
	end := make(chan struct{})
	mute := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(func() { close(end); mute.Close() })
	_, err := run(t, "rollout", "status", "a", "--server", mute.URL, "--timeout", "500ms")
	want := "timed out after 500ms, still reading the sets"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
