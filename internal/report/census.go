package report

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/pvc"
)

var (
	heldClaims = prometheus.NewDesc("lockstep_protection_claims_held",
		"Claims on their way out that are still there, by what keeps them.", []string{"reason"}, nil)
	oldest = prometheus.NewDesc("lockstep_protection_oldest_terminating_seconds",
		"How long ago the deletion of the claim was asked for that has waited longest; 0 without one.", nil, nil)
	backlog = prometheus.NewDesc("lockstep_protection_queue_depth",
		"Claims that wait to be looked at, those being looked at included.", nil, nil)
)

// census is the claims that are on their way out. It is a prometheus.Collector.
type census struct {
	now   func() time.Time
	depth func() int

	mu   sync.Mutex
	held map[types.UID]heldClaim
}

type heldClaim struct {
	reason string
	since  time.Time
}

func newCensus(now func() time.Time, depth func() int) *census {
	return &census{now: now, depth: depth, held: map[types.UID]heldClaim{}}
}

func (c *census) hold(claim *corev1.PersistentVolumeClaim, reason string) {
	if claim.DeletionTimestamp == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[claim.UID] = heldClaim{reason: reason, since: claim.DeletionTimestamp.Time}
}

func (c *census) forget(claim types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, claim)
}

// Describe implements prometheus.Collector.
func (c *census) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{heldClaims, oldest, backlog} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *census) Collect(to chan<- prometheus.Metric) {
	byReason, age := c.count()
	for reason, n := range byReason {
		to <- prometheus.MustNewConstMetric(heldClaims, prometheus.GaugeValue, float64(n), reason)
	}
	to <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, age.Seconds())
	to <- prometheus.MustNewConstMetric(backlog, prometheus.GaugeValue, float64(c.depth()))
}

func (c *census) count() (byReason map[string]int, age time.Duration) {
	byReason = map[string]int{}
	for _, reason := range []string{HeldByPods, HeldByRecord, HeldByOther, HeldUnread, HeldBySlipped, HeldForWriting, HeldUnwritten, HeldByCompleted, HeldByVolume} {
		byReason[reason] = 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.held {
		byReason[h.reason]++
		age = max(age, c.now().Sub(h.since))
	}
	return byReason, age
}

// isOurs tells whether a finalizer of protection is among those left.
func isOurs(left []string) bool {
	return slices.Contains(left, pvc.PodsFinalizer) || slices.Contains(left, pvc.BarrierFinalizer)
}
