package report

import (
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

var (
	fieldsUnknown = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lockstep_definition_fields_unknown",
		Help: "Fields of spec in the CustomResourceDefinition of LeaderWorkerSets that this version of Lockstep lacks.",
	})
	setsUnsupported = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lockstep_sets_unsupported",
		Help: "LeaderWorkerSets that are left alone, because they have what this version of Lockstep lacks.",
	})
)

// Definition reports what the CustomResourceDefinition of sets has and this version lacks.
type Definition struct{ log logr.Logger }

// NewDefinition returns a Definition that logs to log.
func NewDefinition(log logr.Logger) *Definition { return &Definition{log} }

// Lacks reports the paths of one reading.
func (d *Definition) Lacks(paths []string) {
	fieldsUnknown.Set(float64(len(paths)))
	if len(paths) > 0 {
		d.log.Info("the definition of LeaderWorkerSets has fields that this version lacks; sets with a value there are left alone",
			"fields", strings.Join(slices.Sorted(slices.Values(paths)), " "))
	}
}

// unsupported are the sets that are left alone, for the metric.
type unsupported struct {
	mu   sync.Mutex
	sets map[types.NamespacedName]bool
}

func (u *unsupported) count(set types.NamespacedName, is bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if is {
		u.sets[set] = true
	} else {
		delete(u.sets, set)
	}
	setsUnsupported.Set(float64(len(u.sets)))
}

// Unsupported counts a set that is left alone, or no longer.
func (r *Reporter) Unsupported(set types.NamespacedName, is bool) { r.unsupported.count(set, is) }
