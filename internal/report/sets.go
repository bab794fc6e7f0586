package report

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/table"
)

var (
	groupsDesc    = describeSet("groups", "Wanted groups by state (ready, exhausted, refused, backingOff, restarting, waiting, unready, starting).", "state")
	servingDesc   = describeSet("groups_serving", "Ready groups, with those above replicas that a rollout adds.")
	conditionDesc = describeSet("condition_seconds", "Seconds since a condition became True; the reason is the present one.", "condition", "reason")
	leftDesc      = describeSet("rollout_groups_left", "Wanted groups from the partition on that are not at the revision of the spec.")
	usedDesc      = describeSet("rollout_budget_used", "Wanted groups that are down, as the rollout counts them.")
	allowedDesc   = describeSet("rollout_budget_allowed", "Groups that the rollout may have down: maxUnavailable, and each ready surge group.")
	evictionsDesc = describeSet("evictions_allowed", "Groups that may be evicted now, of a set with lockstep.dev/disruption-budget: 0 or 1.")
	beyondDesc    = describeSet("pods_beyond_need_total", "Pods of groups that were replaced or removed before all of their pods had run.")
	idleDesc      = describeSet("accelerators_idle", "Extended resources that wanted groups request while they are not ready, by state of the group.", "resource", "state")
	requestedDesc = describeSet("accelerators_requested", "Extended resources that wanted groups request.", "resource")
	inUseDesc     = describeSet("accelerators_ready", "Extended resources that ready groups request.", "resource")
	startedDesc   = describeSet("rollout_started_timestamp_seconds", "Unix time at which the rollout began that runs or is paused; absent without one.")
	aloneDesc     = prometheus.NewDesc("lockstep_sets_unsupported",
		"LeaderWorkerSets that are left alone, because they have what this version of Lockstep lacks.", nil, nil)
)

// The times of groups differ by set more than by anything else: one loads its model in seconds, another in half an hour. So
// they have the labels of sets, and few buckets.
var (
	timesOfGroups = []float64{10, 30, 60, 120, 300, 600, 1200, 3600}
	readyAfter    = histogram("lockstep_group_ready_seconds",
		"Seconds from the creation of a leader until its group is ready for the first time.", timesOfGroups, "namespace", "name")
	recoveredAfter = histogram("lockstep_group_recovery_seconds",
		"Seconds from the failure of a group until it is ready again.", timesOfGroups, "namespace", "name")
)

func describeSet(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("lockstep_set_"+name, help, append([]string{"namespace", "name"}, labels...), nil)
}

// sets has the metrics of each set: what the last decision counted, and one sum. No decision reads them.
type sets struct {
	now func() time.Time

	mu    sync.Mutex
	known map[types.NamespacedName]*setFigures
	// alone are the sets that are left alone.
	alone map[types.NamespacedName]bool
}

// setFigures is the metrics of one incarnation of a set.
type setFigures struct {
	uid    types.UID
	wanted int32
	lws.Standing
	// accelerators are those of one group, as asked.
	accelerators map[corev1.ResourceName]resource.Quantity
	asked        string
	// led are the groups with a leader, by index. IsReady is set once a group was ready. It is nil before the first count.
	led map[int]lws.LedGroup
	// beyond counts pods beyond need.
	beyond int32
}

// Stands counts what the plan of a set was decided from. The series of a set that is left alone, is being
// deleted or does not exist are removed.
func (r *Reporter) Stands(key types.NamespacedName, set *lwsv1.LeaderWorkerSet, plan lws.Plan) {
	r.sets.mu.Lock()
	defer r.sets.mu.Unlock()
	standing := plan.Standing
	if delete(r.sets.alone, key); plan.IsUnsupported() {
		r.sets.alone[key] = true
	}
	f := r.sets.known[key]
	if standing == nil || f != nil && f.uid != set.UID {
		for _, metric := range []interface{ DeletePartialMatch(prometheus.Labels) int }{restarts, readyAfter, recoveredAfter} {
			metric.DeletePartialMatch(prometheus.Labels{"namespace": key.Namespace, "name": key.Name})
		}
	}
	if standing == nil {
		delete(r.sets.known, key)
		return
	}
	if f == nil || f.uid != set.UID {
		f = &setFigures{uid: set.UID}
		r.sets.known[key] = f
	}
	f.Standing, f.wanted = *standing, 0
	for _, n := range standing.States {
		f.wanted += n
	}
	f.follow(key, standing.Led, r.sets.now())
	if now := fmt.Sprint(standing.Key, standing.Pending, set.Generation); f.asked != now && standing.Effective != nil {
		f.accelerators, f.asked = table.Accelerators(standing.Effective), now
	}
	f.Led, f.Effective = nil, nil // they hold the snapshot
}

// follow observes each group that is ready for the first time with its leader, unless it was ready before this process saw
// it. It counts the pods of groups that had not started, and have another leader or are not wanted now.
func (f *setFigures) follow(key types.NamespacedName, groups []lws.LedGroup, now time.Time) {
	labels := prometheus.Labels{"namespace": key.Namespace, "name": key.Name}
	isFirst, led := f.led == nil, make(map[int]lws.LedGroup, len(groups))
	for _, g := range groups {
		before, last := f.led[g.Index], f.led[g.Index].FailedAt
		delete(f.led, g.Index)
		if before.Leader != g.Leader {
			if before.IsUnstarted() && g.IsUnstarted() {
				f.beyond += before.Pods
			}
			before = lws.LedGroup{}
		}
		wasReady := before.IsReady || isFirst && !g.IsUnstarted()
		isNew := g.FailedAt.After(last)
		if g.IsReady && !wasReady {
			readyAfter.With(labels).Observe(now.Sub(g.Created).Seconds())
			if isNew {
				recoveredAfter.With(labels).Observe(now.Sub(g.FailedAt).Seconds())
			}
		}
		if g.IsReady = g.IsReady || wasReady; !isNew || !g.IsReady { // an undone rollout brings an earlier failure back
			g.FailedAt = last
		}
		g.Pods = max(g.Pods, before.Pods)
		led[g.Index] = g
	}
	for index, gone := range f.led {
		if gone.IsUnstarted() && int32(index) >= f.wanted {
			f.beyond += gone.Pods
		}
	}
	f.led = led
}

// Describe implements prometheus.Collector.
func (s *sets) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{groupsDesc, servingDesc, conditionDesc, leftDesc, usedDesc, allowedDesc, evictionsDesc, beyondDesc, idleDesc,
		requestedDesc, inUseDesc, startedDesc, aloneDesc} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (s *sets) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to <- prometheus.MustNewConstMetric(aloneDesc, prometheus.GaugeValue, float64(len(s.alone)))
	now := s.now()
	for key, f := range s.known {
		f.collect(to, key, now)
	}
}

func (f *setFigures) collect(to chan<- prometheus.Metric, key types.NamespacedName, now time.Time) {
	tell := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, kind, value, append([]string{key.Namespace, key.Name}, labels...)...)
	}
	for state, n := range f.States {
		tell(groupsDesc, prometheus.GaugeValue, float64(n), lws.GroupState(state).String())
		for resource, each := range f.accelerators {
			if n > 0 && lws.GroupState(state) != lws.GroupReady {
				tell(idleDesc, prometheus.GaugeValue, float64(n)*each.AsApproximateFloat64(), string(resource), lws.GroupState(state).String())
			}
		}
	}
	for resource, each := range f.accelerators {
		tell(requestedDesc, prometheus.GaugeValue, float64(f.wanted)*each.AsApproximateFloat64(), string(resource))
		tell(inUseDesc, prometheus.GaugeValue, float64(f.States[lws.GroupReady])*each.AsApproximateFloat64(), string(resource))
	}
	for i := range f.Conditions {
		if c := &f.Conditions[i]; c.Status == metav1.ConditionTrue {
			if c.Type == string(lwsv1.LeaderWorkerSetUpdateInProgress) {
				tell(startedDesc, prometheus.GaugeValue, float64(c.LastTransitionTime.Unix()))
			}
			tell(conditionDesc, prometheus.GaugeValue, max(0, now.Sub(c.LastTransitionTime.Time).Seconds()), c.Type, c.Reason)
		}
	}
	tell(servingDesc, prometheus.GaugeValue, float64(f.Ready))
	tell(leftDesc, prometheus.GaugeValue, float64(f.Target-f.TargetUpdated))
	tell(usedDesc, prometheus.GaugeValue, float64(f.Down))
	tell(allowedDesc, prometheus.GaugeValue, float64(f.Budget))
	if f.Allowance != nil {
		tell(evictionsDesc, prometheus.GaugeValue, float64(f.Allowance.Allowed))
	}
	tell(beyondDesc, prometheus.CounterValue, float64(f.beyond))
}
