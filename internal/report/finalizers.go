package report

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/lru"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
)

// Events about PVCs.
const (
	// DeletionPostponed: the PVC is being deleted, and pods use it.
	DeletionPostponed = "DeletionPostponed"
	// DeletionReleased: no pod uses it any more, and Lockstep does not keep it.
	DeletionReleased = "DeletionReleased"
	// UsedWithoutProtection: a pod started between the removal of two finalizers. It keeps its data until its
	// kubelet restarts.
	UsedWithoutProtection = "UsedWithoutProtection"
)

// Reasons why a terminating PVC exists, in lockstep_protection_claims_held.
const (
	HeldByPods     = "InUse"
	HeldByRecord   = "InUseRecord"
	HeldByOther    = "AwaitingPodProtection"
	HeldUnread     = "Unreadable"
	HeldBySlipped  = "UsedWithoutProtection"
	HeldForWriting = "Releasing"
	HeldUnwritten  = "WriteFailed"
)

// postponedByOthers is the state of a terminating PVC that other controllers keep for its pods.
const postponedByOthers = DeletionPostponed + ", by others"

var (
	reads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lockstep_protection_reads_total",
		Help: "Live reads of pods for terminating PVCs, by source (watch: the cache is proven fresh; list) and outcome (done, failed).",
	}, []string{"by", "outcome"})
	readSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "lockstep_protection_read_duration_seconds",
		Help:    "Duration of live reads of pods, by source.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"by"})
	releases = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lockstep_protection_releases_total",
		Help: "Finalizers removed from PVCs, by finalizer.",
	}, []string{"finalizer"})
	conflicts = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lockstep_protection_conflicts_total",
		Help: "Writes of protection that found the object changed.",
	})
	postponed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lockstep_protection_postponed_total",
		Help: "Deletions of PVCs that were postponed because pods use them.",
	})
)

// Protection reports on the finalizers of PVCs. It is safe for concurrent use.
type Protection struct {
	recorder events.EventRecorder
	metrics  []prometheus.Collector
	// told holds the last event about a PVC, by UID.
	told *lru.Cache

	mu sync.Mutex
	// begun is when this replica began to work. It does not know the events of replicas before it.
	begun time.Time
	// held are the terminating PVCs, and claims counts them by reason.
	held   map[types.UID]heldPVC
	claims *prometheus.GaugeVec
}

type heldPVC struct {
	reason string
	since  time.Time
}

// NewProtection returns a Protection that records events through recorder. depth is the number of PVCs that
// wait for a reconcile.
func NewProtection(recorder events.EventRecorder, now func() time.Time, depth func() int) *Protection {
	p := &Protection{recorder: recorder, told: lru.New(remembered), held: map[types.UID]heldPVC{}}
	p.claims = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lockstep_protection_claims_held",
		Help: "Terminating PersistentVolumeClaims, by what keeps them.",
	}, []string{"reason"})
	p.metrics = []prometheus.Collector{
		actions, reads, readSeconds, releases, conflicts, postponed, p.claims,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lockstep_protection_oldest_terminating_seconds",
			Help: "Age of the oldest deletion of a PVC that still waits; 0 without one.",
		}, func() float64 { return p.oldest(now()).Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lockstep_protection_queue_depth",
			Help: "PVCs that wait for a reconcile or are being reconciled.",
		}, func() float64 { return float64(depth()) }),
	}
	for _, reason := range []string{HeldByPods, HeldByRecord, HeldByOther, HeldUnread, HeldBySlipped, HeldForWriting, HeldUnwritten} {
		p.claims.WithLabelValues(reason).Set(0)
	}
	return p
}

// Metrics returns the metrics of a Protection.
func (p *Protection) Metrics() []prometheus.Collector { return p.metrics }

// Begin sets when this replica began to work.
func (p *Protection) Begin(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = at
}

// inherited reports whether a PVC was deleted before this replica began: another may have reported that it
// stays. Times of the API server have whole seconds.
func (p *Protection) inherited(claim *corev1.PersistentVolumeClaim) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return claim.DeletionTimestamp != nil && claim.DeletionTimestamp.Time.Before(p.begun.Truncate(time.Second))
}

// Held counts a terminating PVC by why it exists.
func (p *Protection) Held(claim *corev1.PersistentVolumeClaim, reason string) {
	if claim.DeletionTimestamp == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(claim.UID)
	p.held[claim.UID] = heldPVC{reason: reason, since: claim.DeletionTimestamp.Time}
	p.claims.WithLabelValues(reason).Inc()
}

// Gone counts a PVC no more: it is not terminating, or does not exist.
func (p *Protection) Gone(claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(claim)
}

func (p *Protection) forget(claim types.UID) {
	if before, ok := p.held[claim]; ok {
		p.claims.WithLabelValues(before.reason).Dec()
		delete(p.held, claim)
	}
}

func (p *Protection) oldest(now time.Time) (age time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.held {
		age = max(age, now.Sub(h.since))
	}
	return age
}

// Read counts one live read of pods.
func (p *Protection) Read(by string, took time.Duration, err error) {
	outcome := "done"
	if err != nil {
		outcome = "failed"
	}
	reads.WithLabelValues(by, outcome).Inc()
	readSeconds.WithLabelValues(by).Observe(took.Seconds())
}

// Wrote reports the result of a write to a PVC, a volume or a pod.
func (p *Protection) Wrote(ctx context.Context, a action.Action, err error) {
	log := logr.FromContextOrDiscard(ctx).WithValues("verb", a.Verb(), "namespace", a.Target().Namespace,
		"object", a.Target().String(), "reason", a.Why().Code, "because", a.Why().Sentence)
	switch {
	case errors.Is(err, apply.ErrGone):
	case errors.Is(err, apply.ErrStale):
		conflicts.Inc()
		count(a, "stale")
		log.V(1).Info("reading again", "refusal", err.Error())
	case err != nil:
		count(a, "failed")
	default:
		count(a, "done")
		log.Info("done")
	}
}

// Postponed reports once that a terminating PVC stays because pods use it.
func (p *Protection) Postponed(claim *corev1.PersistentVolumeClaim, why action.Reason) {
	p.Held(claim, HeldByPods)
	if _, ok := p.told.Get(claim.UID); ok {
		return
	}
	postponed.Inc()
	p.tell(claim, corev1.EventTypeNormal, DeletionPostponed, why.Sentence)
}

// Slipped reports once that pods use a terminating PVC without a finalizer for pods.
func (p *Protection) Slipped(claim *corev1.PersistentVolumeClaim, users string) {
	p.Held(claim, HeldBySlipped)
	if p.last(claim) != UsedWithoutProtection {
		p.tell(claim, corev1.EventTypeWarning, UsedWithoutProtection,
			"is being deleted without "+pvc.PodsFinalizer+"; do not restart the kubelet of a pod that runs on it; end "+users)
	}
}

// Released reports a removed finalizer; and once, after the last one of Lockstep, that the deletion goes on.
func (p *Protection) Released(claim *corev1.PersistentVolumeClaim, finalizer string, left []string) {
	releases.WithLabelValues(finalizer).Inc()
	ours := slices.Contains(left, pvc.PodsFinalizer) || slices.Contains(left, pvc.BarrierFinalizer)
	if ours || p.last(claim) == "" && !p.inherited(claim) {
		return
	}
	note := released
	if len(left) > 0 {
		note += ", once other finalizers are removed: " + strings.Join(left, ", ")
	}
	p.tell(claim, corev1.EventTypeNormal, DeletionReleased, note)
	p.told.Remove(claim.UID)
}

const released = "no pod uses the PVC any more: its deletion goes on"

// Observed reports once that the deletion of a PVC is postponed by other controllers.
func (p *Protection) Observed(claim *corev1.PersistentVolumeClaim, why action.Reason) {
	last := p.last(claim)
	p.Postponed(claim, why)
	if last != DeletionReleased {
		p.told.Add(claim.UID, postponedByOthers)
	}
}

// LetGo reports once that pods no longer keep a PVC that other controllers protect. If a replica before this
// one may have reported the start, it does so only while the finalizer for pods is there.
func (p *Protection) LetGo(claim *corev1.PersistentVolumeClaim) {
	last := p.last(claim)
	before := p.inherited(claim) && slices.Contains(claim.Finalizers, pvc.PodsFinalizer)
	if last != DeletionReleased && (last != "" || before) {
		p.tell(claim, corev1.EventTypeNormal, DeletionReleased, released)
	}
}

// Went reports that a PVC is gone that other controllers kept, unless its release was reported.
func (p *Protection) Went(claim *corev1.PersistentVolumeClaim) {
	if p.last(claim) == postponedByOthers {
		p.tell(claim, corev1.EventTypeNormal, DeletionReleased, "the PVC is gone")
		p.told.Remove(claim.UID)
	}
}

// Waits reports once in a row why the scheduling gate of a pod stays.
func (p *Protection) Waits(pod *corev1.Pod, why action.Reason) {
	if last, _ := p.told.Get(pod.UID); last != why {
		p.told.Add(pod.UID, why)
		p.recorder.Eventf(pod, nil, corev1.EventTypeWarning, why.Code, "Schedule", "%s", clipped(why.Sentence))
	}
}

// last returns the reason of the last event about a PVC.
func (p *Protection) last(claim *corev1.PersistentVolumeClaim) string {
	last, _ := p.told.Get(claim.UID)
	reason, _ := last.(string)
	return reason
}

func (p *Protection) tell(claim *corev1.PersistentVolumeClaim, kind, reason, note string) {
	p.told.Add(claim.UID, reason)
	p.recorder.Eventf(claim, nil, kind, reason, "Protect", "%s", clipped(note))
}
