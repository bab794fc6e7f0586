package report

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var decisions = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "lockstep_decision_duration_seconds",
	Help:    "Duration of a read and its decision, by what it is about (set, group).",
	Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5},
}, []string{"of"})

// What a decision is about.
const (
	OfSet   = "set"
	OfGroup = "group"
)

// Decided counts a read with its decision.
func (r *Reporter) Decided(of string, took time.Duration) {
	decisions.WithLabelValues(of).Observe(took.Seconds())
}

var handshakesFailed = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "lockstep_tls_handshakes_failed_total",
	Help: "TLS handshakes of the operator's servers that failed, by server (webhooks, metrics).",
}, []string{"server"})

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

var foreignWebhooks = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "lockstep_foreign_webhooks",
	Help: "1 for each webhook in a webhook configuration of Lockstep that no installer wrote, or that calls another host.",
}, []string{"configuration", "webhook"})

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
