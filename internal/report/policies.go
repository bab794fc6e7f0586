package report

import (
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
)

// Policies reports policies of protection that are missing: an administrator can delete them.
type Policies struct {
	log    logr.Logger
	metric prometheus.Gauge

	mu sync.Mutex
	// told is what was logged last.
	told string
}

// NewPolicies returns a Policies that logs to log.
func NewPolicies(log logr.Logger) *Policies {
	return &Policies{log: log, metric: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lockstep_protection_policies_missing",
		Help: "Policies of protection that are not in the API server, or lack their binding.",
	})}
}

// Metrics returns the metric of Policies.
func (p *Policies) Metrics() []prometheus.Collector { return []prometheus.Collector{p.metric} }

// Missing logs the result of one read of the policies if it changed, and counts it for alerts. If the read
// failed, the metric stays.
func (p *Policies) Missing(names []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := strings.Join(slices.Sorted(slices.Values(names)), ", ")
	if err != nil {
		now = "unknown: " + err.Error()
	} else {
		p.metric.Set(float64(len(names)))
	}
	switch now {
	case p.told:
	case "":
		p.log.Info("no policy is missing any more")
	default:
		p.log.Error(err, "policies are missing, so what they refuse is not refused; apply them again: lockstep install", "policies", now)
	}
	p.told = now
}
