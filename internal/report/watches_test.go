package report

import (
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"lockstep.dev/lockstep/test/fakeapi"
)

func TestFailedWatchesAreCounted(t *testing.T) {
	for _, err := range []error{io.EOF, errors.New("forbidden")} {
		WatchFailed(t.Context(), cache.NewReflector(nil, &corev1.Pod{}, nil, 0), err)
	}
	if diff := cmp.Diff(map[string]float64{"watch_errors_total *v1.Pod": 1}, fakeapi.Metrics(t, WatchMetrics()...)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
