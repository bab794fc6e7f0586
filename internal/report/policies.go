package report

import (
	"maps"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"lockstep.dev/lockstep/internal/pvc/workloads"
)

var (
	// policiesMissing is for alerts: an administrator can delete policies.
	policiesMissing = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lockstep_protection_policies_missing",
		Help: "Policies of protection that are not in the API server, or lack their binding.",
	})
	kindsAstray = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lockstep_protection_kinds_astray",
		Help: "Kinds of protection.kinds that are not served, are cluster-scoped, or have a path that leads nowhere.",
	})
)

// complaints logs what is wrong with objects once, and that it is resolved.
type complaints struct {
	log logr.Logger

	mu       sync.Mutex
	standing map[string]string
}

func newComplaints(log logr.Logger) *complaints {
	return &complaints{log: log, standing: map[string]string{}}
}

// note sets the complaint about an object; an empty one resolves it.
func (c *complaints) note(object, complaint string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.standing[object] == complaint:
		return
	case complaint == "":
		c.log.Info("resolved", "object", object)
	default:
		c.log.Error(nil, complaint, "object", object)
	}
	c.standing[object] = complaint
}

// replace sets the complaints about all objects.
func (c *complaints) replace(now map[string]string) {
	c.mu.Lock()
	all := maps.Clone(c.standing)
	c.mu.Unlock()
	maps.Copy(all, now)
	for object := range all {
		c.note(object, now[object])
	}
}

// Policies reports which policies of protection are missing.
type Policies struct{ *complaints }

// NewPolicies returns a Policies that logs to log.
func NewPolicies(log logr.Logger) *Policies { return &Policies{newComplaints(log)} }

// Metrics returns the metrics of Policies.
func (*Policies) Metrics() []prometheus.Collector { return []prometheus.Collector{policiesMissing} }

// Read reports the result of one read of the policies. If it failed, the metric stays.
func (p *Policies) Read(missing []string, err error) {
	if err != nil {
		p.note("all policies", "cannot be read: "+err.Error())
		return
	}
	now := map[string]string{}
	policiesMissing.Set(float64(len(missing)))
	for _, policy := range missing {
		now[policy] = "the policy is not in the API server, so what it refuses is not refused; apply it again: lockstep install"
	}
	p.replace(now)
}

// Kinds reports configured kinds that hold less than they promise.
type Kinds struct{ *complaints }

// NewKinds returns a Kinds that logs to log.
func NewKinds(log logr.Logger) *Kinds { return &Kinds{newComplaints(log)} }

// Metrics returns the metrics of Kinds.
func (*Kinds) Metrics() []prometheus.Collector { return []prometheus.Collector{kindsAstray} }

// Read reports what is known of the configured kinds.
func (k *Kinds) Read(described []workloads.Described) {
	now := map[string]string{}
	for _, d := range described {
		if complaint := d.Complaint(); complaint != "" {
			now[d.String()] = complaint
		}
	}
	kindsAstray.Set(float64(len(now)))
	k.replace(now)
}
