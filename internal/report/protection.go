package report

import (
	"context"
	"errors"
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
)

// Events about claims.
const (
	// DeletionPostponed: somebody wants the claim gone, and pods use it.
	DeletionPostponed = "DeletionPostponed"
	// DeletionReleased: nobody uses it any more, and nothing of ours keeps it.
	DeletionReleased = "DeletionReleased"
	// UsedWithoutProtection: a pod came to run on the claim while its protection was
	// being taken off. It keeps its data, unless its kubelet starts anew.
	UsedWithoutProtection = "UsedWithoutProtection"
)

// Why a claim on its way out is still there; the reasons of lockstep_protection_claims_held.
const (
	HeldByPods     = "InUse"
	HeldByRecord   = "InUseRecord"
	HeldByOther    = "AwaitingPodProtection"
	HeldUnread     = "Unreadable"
	HeldBySlipped  = "UsedWithoutProtection"
	HeldForWriting = "Releasing"
	HeldUnwritten  = "WriteFailed"
	// Only of claims that chose so, and the codes of why they wait.
	HeldByCompleted = "CompletedPods"
	HeldByVolume    = "VolumeAttached"
)

var (
	reads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lockstep_protection_reads_total",
		Help: "Live readings of pods for claims on their way out, by what answered (watch: a proof that the index is up to date; list) and outcome (done, failed).",
	}, []string{"by", "outcome"})
	readSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "lockstep_protection_read_duration_seconds",
		Help:    "How long live readings of pods took, by what answered.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"by"})
	releases = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lockstep_protection_releases_total",
		Help: "Finalizers taken off claims that nobody uses, by finalizer.",
	}, []string{"finalizer"})
	conflicts = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lockstep_protection_conflicts_total",
		Help: "Writes for protection that found their object changed, and were decided anew.",
	})
	postponed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lockstep_protection_postponed_total",
		Help: "Deletions of claims that were found postponed because pods use them.",
	})
)

// Protection tells of claims. It is safe for concurrent use.
type Protection struct {
	recorder events.EventRecorder
	census   *census
	// told holds what was told of a claim last, by UID.
	told *lru.Cache

	mu sync.Mutex
	// begun is since when this replica does the work: what was told before, it does not know.
	begun time.Time
}

// NewProtection returns a Protection that records events through recorder. depth is
// how many claims wait to be looked at.
func NewProtection(recorder events.EventRecorder, now func() time.Time, depth func() int) *Protection {
	return &Protection{recorder: recorder, census: newCensus(now, depth), told: lru.New(remembered)}
}

// Begin notes since when this replica does the work.
func (p *Protection) Begin(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = at
}

// inherited tells whether a claim was on its way out before this replica began: that it
// stays may have been told by another. Times of the API server have whole seconds.
func (p *Protection) inherited(claim *corev1.PersistentVolumeClaim) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return claim.DeletionTimestamp != nil && claim.DeletionTimestamp.Time.Before(p.begun.Truncate(time.Second))
}

// Metrics returns what it counts in, the state of this process included.
func (p *Protection) Metrics() []prometheus.Collector {
	return []prometheus.Collector{actions, reads, readSeconds, releases, conflicts, postponed, p.census}
}

// Read tells of one live reading of pods.
func (p *Protection) Read(by string, took time.Duration, err error) {
	outcome := "done"
	if err != nil {
		outcome = "failed"
	}
	reads.WithLabelValues(by, outcome).Inc()
	readSeconds.WithLabelValues(by).Observe(took.Seconds())
}

// Postponed tells that a claim on its way out stays because pods use it, once in
// the claim's life.
func (p *Protection) Postponed(claim *corev1.PersistentVolumeClaim, why action.Reason) {
	p.Held(claim, HeldByPods)
	if _, ok := p.told.Get(claim.UID); ok {
		return
	}
	p.told.Add(claim.UID, DeletionPostponed)
	postponed.Inc()
	p.event(claim, corev1.EventTypeNormal, DeletionPostponed, why.Sentence)
}

// Slipped tells that pods run on a claim that bears no pod protection any more.
func (p *Protection) Slipped(claim *corev1.PersistentVolumeClaim, users string) {
	p.Held(claim, HeldBySlipped)
	if last, _ := p.told.Get(claim.UID); last == UsedWithoutProtection {
		return
	}
	p.told.Add(claim.UID, UsedWithoutProtection)
	p.event(claim, corev1.EventTypeWarning, UsedWithoutProtection,
		"is being deleted, its pod protection is gone, and it has users: one that runs would lose the volume if its kubelet were restarted, one that has not started never will; end it: "+users)
}

// Held notes why a claim on its way out is still there.
func (p *Protection) Held(claim *corev1.PersistentVolumeClaim, reason string) {
	p.census.hold(claim, reason)
}

// Gone notes that a claim is not on its way out, or not there any more.
func (p *Protection) Gone(claim types.UID) { p.census.forget(claim) }

// Wrote tells what became of a write onto a claim or a volume.
func (p *Protection) Wrote(ctx context.Context, a action.Action, err error) {
	log := logr.FromContextOrDiscard(ctx)
	about := []any{"verb", a.Verb(), "namespace", a.Target().Namespace, "object", a.Target().String(), "reason", a.Why().Code, "because", a.Why().Sentence}
	switch {
	case errors.Is(err, apply.ErrGone):
	case errors.Is(err, apply.ErrStale):
		conflicts.Inc()
		count(a, "stale")
		log.V(1).Info("looking again", append(about, "refusal", err.Error())...)
	case err != nil:
		count(a, "failed")
	default:
		count(a, "done")
		log.Info("done", about...)
	}
}

// Released tells that a finalizer was taken off, and, of the last one of ours, that
// the deletion which was postponed goes on.
func (p *Protection) Released(claim *corev1.PersistentVolumeClaim, finalizer string, left []string) {
	releases.WithLabelValues(finalizer).Inc()
	if _, told := p.told.Get(claim.UID); isOurs(left) || !told && !p.inherited(claim) {
		return
	}
	p.told.Remove(claim.UID)
	note := "nobody uses the claim any more: its deletion goes on"
	if len(left) > 0 {
		note += ", as soon as others let it go: " + strings.Join(left, ", ")
	}
	p.event(claim, corev1.EventTypeNormal, DeletionReleased, note)
}

func (p *Protection) event(claim *corev1.PersistentVolumeClaim, kind, reason, note string) {
	p.recorder.Eventf(claim, nil, kind, reason, "Protect", "%s", clipped(note))
}
