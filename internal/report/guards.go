package report

import (
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
)

// policiesMissing is what alerts go by: who administers a cluster can delete policies.
var policiesMissing = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "lockstep_protection_policies_missing",
	Help: "Policies of protection that are not in the API server, or without their binding, and no older form of them either. Those that API servers load from files cannot be seen.",
})

// Guards tells whether the policies of protection are there.
type Guards struct {
	log logr.Logger

	mu      sync.Mutex
	missing []string
	failed  bool
}

// NewGuards returns a Guards that tells in log.
func NewGuards(log logr.Logger) *Guards { return &Guards{log: log} }

// Metrics returns what it counts in.
func (*Guards) Metrics() []prometheus.Collector { return []prometheus.Collector{policiesMissing} }

// Looked tells what a look at the policies has found, if that is news.
func (g *Guards) Looked(missing []string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		if !g.failed {
			g.log.Error(err, "nobody can tell whether the policies of protection are there")
		}
		g.failed = true
		return
	}
	policiesMissing.Set(float64(len(missing)))
	switch {
	case slices.Equal(g.missing, missing):
	case len(missing) == 0:
		g.log.Info("all policies of protection are there again")
	default:
		g.log.Error(nil, "policies of protection are not in the API server: unless it loads them from files, what they refuse is not refused, and what they give is not given. Apply them again: lockstep install",
			"missing", strings.Join(missing, ", "))
	}
	g.missing, g.failed = slices.Clone(missing), false
}
