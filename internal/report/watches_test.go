package report

import (
	"errors"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestFailingWatchesAreCounted(t *testing.T) {
	pods := cache.NewReflector(nil, &corev1.Pod{}, nil, 0)
	WatchFailed(t.Context(), pods, io.EOF)
	if got := countFailing(time.Now()); got != 0 {
		t.Errorf("after the end of a watch: got %d", got)
	}
	WatchFailed(t.Context(), pods, errors.New("forbidden"))
	WatchFailed(t.Context(), cache.NewReflector(nil, &corev1.Node{}, nil, 0), errors.New("forbidden"))
	if got := countFailing(time.Now()); got != 2 {
		t.Errorf("got %d, want 2", got)
	}
	if got := countFailing(time.Now().Add(failing)); got != 0 {
		t.Errorf("after %s: got %d", failing, got)
	}
}
