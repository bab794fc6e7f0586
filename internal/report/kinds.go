package report

import (
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"lockstep.dev/lockstep/internal/pvc/workloads"
)

var kindsAstray = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "lockstep_protection_kinds_astray",
	Help: "Kinds of workloads of protection.kinds in the configuration that hold less than they promise: they are not served, are of the whole cluster, or a path leads nowhere on any workload there is.",
})

// Kinds tells of descriptions of kinds that hold less than they promise.
type Kinds struct {
	log logr.Logger

	mu   sync.Mutex
	told map[string]string
}

// NewKinds returns a Kinds that tells in log.
func NewKinds(log logr.Logger) *Kinds { return &Kinds{log: log, told: map[string]string{}} }

// Metrics returns what it counts in.
func (*Kinds) Metrics() []prometheus.Collector { return []prometheus.Collector{kindsAstray} }

// Looked tells what came of the descriptions, of each that is news.
func (k *Kinds) Looked(described []workloads.Described) {
	k.mu.Lock()
	defer k.mu.Unlock()
	astray := 0
	for _, d := range described {
		kind, says := d.String(), d.Complaint()
		if says != "" {
			astray++
		}
		switch says {
		case k.told[kind]:
		case "":
			k.log.Info("a kind of workload is read as it is described", "kind", kind)
		default:
			k.log.Error(nil, says, "kind", kind)
		}
		k.told[kind] = says
	}
	kindsAstray.Set(float64(astray))
}
