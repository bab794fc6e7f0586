package report

import (
	"context"
	"errors"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

// watchErrors counts failed lists and watches of informers. While one fails its cache is late; only live
// reads decide then.
var watchErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "lockstep_watch_errors_total",
	Help: "Failed lists and watches of the operator's informers, by type.",
}, []string{"type"})

// WatchMetrics returns the metric that WatchFailed counts in.
func WatchMetrics() []prometheus.Collector { return []prometheus.Collector{watchErrors} }

// WatchFailed counts and logs a failed list or watch of an informer. A watch that expired or ended begins again
// at once, and is not counted.
func WatchFailed(ctx context.Context, r *cache.Reflector, err error) {
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !errors.Is(err, io.EOF) {
		watchErrors.WithLabelValues(r.TypeDescription()).Inc()
	}
	cache.DefaultWatchErrorHandler(ctx, r, err)
}
