package report

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

// failing is how long after its last failure a list or watch counts as failing. It is twice the longest
// back-off of an informer.
const failing = 2 * time.Minute

var (
	// watchErrors counts failed lists and watches of informers. While one fails its cache is late; only
	// live reads decide then.
	watchErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lockstep_watch_errors_total",
		Help: "Failed lists and watches of the operator's informers, by type.",
	}, []string{"type"})
	unreadKinds = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lockstep_protection_unread_kinds",
		Help: "Types whose list or watch failed in the last two minutes.",
	}, func() float64 { return float64(countFailing(time.Now())) })

	// failed has the time of the last failure by type.
	failed sync.Map
)

// WatchMetrics returns the metrics that WatchFailed counts in.
func WatchMetrics() []prometheus.Collector { return []prometheus.Collector{watchErrors, unreadKinds} }

// WatchFailed counts and logs a failed list or watch of an informer.
func WatchFailed(ctx context.Context, r *cache.Reflector, err error) {
	watchErrors.WithLabelValues(r.TypeDescription()).Inc()
	ordinary := apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, io.EOF)
	if !ordinary { // the informer lists or watches again at once
		failed.Store(r.TypeDescription(), time.Now())
	}
	cache.DefaultWatchErrorHandler(ctx, r, err)
}

func countFailing(now time.Time) (count int) {
	for _, at := range failed.Range {
		if now.Sub(at.(time.Time)) < failing {
			count++
		}
	}
	return count
}
