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

var (
	reads = counter("lockstep_protection_reads_total",
		"Live reads of pods for terminating PVCs, by source (watch: the cache is proven fresh; list) and outcome (done, failed).", "by", "outcome")
	readSeconds = histogram("lockstep_protection_read_duration_seconds",
		"Duration of live reads of pods, by source.",
		[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "by")
	releases = counter("lockstep_protection_releases_total",
		"Finalizers removed from PVCs, by finalizer.", "finalizer")
	conflicts = counter("lockstep_protection_conflicts_total",
		"Writes of protection that found the object changed.").WithLabelValues()
	postponed = counter("lockstep_protection_postponed_total",
		"Deletions of PVCs that were postponed because pods use them.").WithLabelValues()
)

// Protection reports on the finalizers of PVCs. It is safe for concurrent use.
type Protection struct {
	*Reporter
	metrics []prometheus.Collector
	// told holds the last event about a PVC, by UID.
	told *lru.Cache

	mu sync.Mutex
	// held are the terminating PVCs, and claims counts them by reason.
	held   map[types.NamespacedName]heldPVC
	claims *prometheus.GaugeVec
}

type heldPVC struct {
	reason string
	since  time.Time
}

// NewProtection returns a Protection that records events through recorder. depth is the number of PVCs that
// wait for a reconcile.
func NewProtection(recorder events.EventRecorder, now func() time.Time, depth func() int) *Protection {
	p := &Protection{Reporter: New(recorder), told: lru.New(remembered), held: map[types.NamespacedName]heldPVC{}}
	p.claims = gauge("lockstep_protection_claims_held",
		"Terminating PersistentVolumeClaims, by what keeps them.", "reason")
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

// Held counts a terminating PVC by why it exists.
func (p *Protection) Held(claim *corev1.PersistentVolumeClaim, reason string) {
	if claim.DeletionTimestamp == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
	p.forget(key)
	p.held[key] = heldPVC{reason: reason, since: claim.DeletionTimestamp.Time}
	p.claims.WithLabelValues(reason).Inc()
}

// Gone counts a PVC no more: it is not terminating, or does not exist.
func (p *Protection) Gone(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(key)
}

func (p *Protection) forget(key types.NamespacedName) {
	if before, ok := p.held[key]; ok {
		p.claims.WithLabelValues(before.reason).Dec()
		delete(p.held, key)
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
	if errors.Is(err, apply.ErrGone) {
		return
	}
	if errors.Is(err, apply.ErrStale) {
		conflicts.Inc()
	}
	ctx = logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues("namespace", a.Target().Namespace))
	p.Tell(ctx, nil, a, err) // these writes have no events
}

// Postponed reports once that a terminating PVC stays because pods use it.
func (p *Protection) Postponed(claim *corev1.PersistentVolumeClaim, why action.Reason) {
	p.Held(claim, HeldByPods)
	if _, ok := p.told.Get(claim.UID); ok {
		return
	}
	postponed.Inc()
	p.tell(claim, action.Event{Reason: DeletionPostponed, Note: why.Sentence})
}

// Slipped reports once that pods use a terminating PVC without a finalizer for pods.
func (p *Protection) Slipped(claim *corev1.PersistentVolumeClaim, users string) {
	p.Held(claim, HeldBySlipped)
	if last, _ := p.told.Get(claim.UID); last != UsedWithoutProtection {
		p.tell(claim, action.Event{Warning: true, Reason: UsedWithoutProtection,
			Note: "is being deleted without " + pvc.PodsFinalizer + "; do not restart the kubelet of a pod that runs on it; end " + users})
	}
}

// Released reports a removed finalizer; and once, after the last one of Lockstep, that the deletion goes on.
func (p *Protection) Released(claim *corev1.PersistentVolumeClaim, finalizer string, left []string) {
	releases.WithLabelValues(finalizer).Inc()
	ours := slices.Contains(left, pvc.PodsFinalizer) || slices.Contains(left, pvc.BarrierFinalizer)
	if _, postponed := p.told.Get(claim.UID); ours || !postponed {
		return
	}
	note := "no pod uses the PVC any more: its deletion goes on"
	if len(left) > 0 {
		note += ", once other finalizers are removed: " + strings.Join(left, ", ")
	}
	p.tell(claim, action.Event{Reason: DeletionReleased, Note: note})
	p.told.Remove(claim.UID)
}

// Waits reports once in a row why the scheduling gate of a pod stays.
func (p *Protection) Waits(pod *corev1.Pod, why action.Reason) {
	p.Wait(pod, pod.UID, action.Wait{Reason: why, Tell: &action.Event{Warning: true, Reason: why.Code, Action: "Schedule", Note: why.Sentence}})
}

func (p *Protection) tell(claim *corev1.PersistentVolumeClaim, event action.Event) {
	p.told.Add(claim.UID, event.Reason)
	event.Action = "Protect"
	p.event(claim, event)
}
