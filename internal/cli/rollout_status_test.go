package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// An API server that takes connections and never answers is no reason to wait
// longer than was asked for.
func TestTheTimeToWaitCoversTheFirstLook(t *testing.T) {
	end := make(chan struct{})
	mute := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(func() { close(end); mute.Close() })
	_, err := run(t, "rollout", "status", "a", "--server", mute.URL, "--timeout", "500ms")
	want := "timed out after 500ms, still waiting for the API server to tell of the sets"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestWhatIsToldOfSeveralSetsNamesThem(t *testing.T) {
	key := types.NamespacedName{Namespace: "ns", Name: "llama"}
	for several, want := range map[bool]string{false: "waiting", true: `leaderworkerset "llama": waiting`} {
		if got := (follow{several: several}).of(key, "waiting"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
