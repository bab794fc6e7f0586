package report

import (
	"maps"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// Complaints logs what is wrong with objects once, and that it is resolved, and counts it for alerts.
type Complaints struct {
	log    logr.Logger
	metric prometheus.Gauge

	mu       sync.Mutex
	standing map[string]string
}

func newComplaints(log logr.Logger, name, help string) *Complaints {
	metric := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	return &Complaints{log: log, metric: metric, standing: map[string]string{}}
}

// NewPolicies returns Complaints about policies of protection: an administrator can delete them.
func NewPolicies(log logr.Logger) *Complaints {
	return newComplaints(log, "lockstep_protection_policies_missing",
		"Policies of protection that are not in the API server, or lack their binding.")
}

// NewKinds returns Complaints about configured kinds that hold less than they promise.
func NewKinds(log logr.Logger) *Complaints {
	return newComplaints(log, "lockstep_protection_kinds_astray",
		"Kinds of protection.kinds that are not served, are cluster-scoped, or have a path that leads nowhere.")
}

// Metrics returns the metric of Complaints.
func (c *Complaints) Metrics() []prometheus.Collector { return []prometheus.Collector{c.metric} }

// Policies reports the result of one read of the policies. If it failed, the metric stays.
func (c *Complaints) Policies(missing []string, err error) {
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.note("all policies", "cannot be read: "+err.Error())
		return
	}
	now := map[string]string{}
	for _, policy := range missing {
		now[policy] = "the policy is not in the API server, so what it refuses is not refused; apply it again: lockstep install"
	}
	c.replace(now)
}

// Kinds reports what is known of the configured kinds.
func (c *Complaints) Kinds(described []workloads.Described) {
	now := map[string]string{}
	for _, d := range described {
		if complaint := d.Complaint(); complaint != "" {
			now[d.String()] = complaint
		}
	}
	c.replace(now)
}

// replace sets the complaints about all objects.
func (c *Complaints) replace(now map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.metric.Set(float64(len(now)))
	all := maps.Clone(c.standing)
	maps.Copy(all, now)
	for object := range all {
		c.note(object, now[object])
	}
}

// note sets the complaint about an object; an empty one resolves it.
func (c *Complaints) note(object, complaint string) {
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
