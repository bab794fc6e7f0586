package report

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

var decisions = histogram("lockstep_decision_duration_seconds",
	"Duration of a read and its decision, by what it is about (set, group).",
	[]float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5}, "of")

// What a decision is about.
const (
	OfSet   = "set"
	OfGroup = "group"
)

// Decided counts a read with its decision.
func (r *Reporter) Decided(of string, took time.Duration) {
	decisions.WithLabelValues(of).Observe(took.Seconds())
}

var handshakesFailed = counter("lockstep_tls_handshakes_failed_total",
	"TLS handshakes of the operator's servers that failed, by server (webhooks, metrics).", "server")

// ServerMetrics returns the metric that HandshakeFailed counts in.
func ServerMetrics() []prometheus.Collector { return []prometheus.Collector{handshakesFailed} }

// HandshakeFailed counts a TLS handshake of a server.
func HandshakeFailed(server string) { handshakesFailed.WithLabelValues(server).Inc() }

// BuildMetrics names the build of the operator.
func BuildMetrics(version, commit, goVersion string) []prometheus.Collector {
	return []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lockstep_build_info", Help: "1, with the build of the operator in labels.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit, "goversion": goVersion},
	}, func() float64 { return 1 })}
}

var foreignWebhooks = gauge("lockstep_foreign_webhooks",
	"1 for each webhook in a webhook configuration of Lockstep that no installer wrote, or that calls another host.", "configuration", "webhook")

// ForeignWebhooks names the webhooks of a configuration that no installer wrote, in place of those named before.
func ForeignWebhooks(configuration string, names []string) {
	foreignWebhooks.DeletePartialMatch(prometheus.Labels{"configuration": configuration})
	for _, name := range names {
		foreignWebhooks.WithLabelValues(configuration, name).Set(1)
	}
}

// CertificateMetrics reports when the certificate of the webhook server expires, and which webhooks are foreign.
func CertificateMetrics(expires func() (time.Time, error)) []prometheus.Collector {
	return []prometheus.Collector{certificate{expires}, foreignWebhooks}
}

var expiryDesc = prometheus.NewDesc("lockstep_webhook_certificate_expiry_timestamp_seconds",
	"Unix time at which the certificate of the webhook server expires; absent while there is none.", nil, nil)

type certificate struct{ expires func() (time.Time, error) }

// Describe implements prometheus.Collector.
func (c certificate) Describe(to chan<- *prometheus.Desc) { to <- expiryDesc }

// Collect implements prometheus.Collector.
func (c certificate) Collect(to chan<- prometheus.Metric) {
	if at, err := c.expires(); err == nil {
		to <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(at.Unix()))
	}
}

// watchErrors counts failed lists and watches of informers. While one fails its cache is late; only live
// reads decide then.
var watchErrors = counter("lockstep_watch_errors_total",
	"Failed lists and watches of the operator's informers, by type.", "type")

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

var policiesMissing = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "lockstep_protection_policies_missing",
	Help: "Policies of protection that are not in the API server, or lack their binding.",
})

// Policies reports policies of protection that are missing: an administrator can delete them.
type Policies struct {
	Log logr.Logger

	mu sync.Mutex
	// told is what was logged last.
	told string
}

// Missing logs the result of one read of the policies if it changed, and counts it for alerts. If the read
// failed, the metric stays.
func (p *Policies) Missing(names []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := strings.Join(slices.Sorted(slices.Values(names)), ", ")
	if err != nil {
		now = "unknown: " + err.Error()
	} else {
		policiesMissing.Set(float64(len(names)))
	}
	switch now {
	case p.told:
	case "":
		p.Log.Info("no policy is missing any more")
	default:
		p.Log.Error(err, "policies are missing, so what they refuse is not refused; apply them again: lockstep install", "policies", now)
	}
	p.told = now
}
