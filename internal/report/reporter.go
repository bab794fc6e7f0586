// Package report is the only place that tells what happened: events for users, metrics for dashboards, and
// one log line for each write.
//
// It does not know why something was decided, beyond the reason that comes with the decision. A refused write
// that means "read again" is not reported.
package report

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

const (
	// noteLimit is the most bytes that the events API accepts in a note.
	noteLimit = 1024
	// remembered bounds how many objects are known to have an event.
	remembered = 10_000
)

var (
	actions = counter("lockstep_actions_total",
		"Writes of the operator, by verb, kind, reason and outcome (done, stale, failed).", "verb", "kind", "reason", "outcome")
	restarts = counter("lockstep_group_restarts_total",
		"Failures of groups that are recreated, by cause (PodRestarted, PodEnded, PodDeleted, PodEvicted, PodGone, StatefulSetDeleted, "+
			"LeaderReplaced, Requested) and exit code (none, 0, 1-127, 137, 128-255).", "namespace", "name", "failure", "exit")
)

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// Metrics returns the metrics about sets and groups.
func (r *Reporter) Metrics() []prometheus.Collector {
	return []prometheus.Collector{actions, restarts, readyAfter, recoveredAfter, decisions, r.sets}
}

// Reporter reports writes and waits. It is safe for concurrent use.
type Reporter struct {
	recorder events.EventRecorder
	// waits holds the sentences of the waits that were reported last, by the UID that waits.
	waits *lru.Cache
	sets  *sets
}

// New returns a Reporter that records events through recorder.
func New(recorder events.EventRecorder) *Reporter {
	figures := &sets{now: time.Now, known: map[types.NamespacedName]*setFigures{}, alone: map[types.NamespacedName]bool{}}
	return &Reporter{recorder: recorder, waits: lru.New(remembered), sets: figures}
}

// Tell reports the result of an action on behalf of owner.
func (r *Reporter) Tell(ctx context.Context, owner client.Object, a action.Action, err error) {
	about := a.About()
	log := logr.FromContextOrDiscard(ctx).WithValues(
		"verb", about.Verb, "object", a.Target().String(), "reason", about.Because.Code, "because", about.Because.Sentence)
	switch {
	case errors.Is(err, apply.ErrStale):
		count(a, "stale")
		log.V(1).Info("reading again", "refusal", err.Error())
	case errors.Is(err, context.Canceled): // the process ends: the write may have been done
	case err != nil:
		count(a, "failed")
		if refused := about.Tell.Refused; refused != nil {
			event := *refused
			event.Note += ": " + err.Error()
			r.event(at(owner, a.Target().ResourceVersion+lws.Fingerprint(event.Note)), event)
		}
	default:
		count(a, "done")
		for _, failure := range about.Tell.Failures {
			restarts.WithLabelValues(owner.GetNamespace(), owner.GetName(), failure.Code, exitClass(failure.ExitCode)).Inc()
		}
		log.Info("done")
		for _, event := range about.Tell.Done {
			r.event(at(owner, a.Target().ResourceVersion), event)
		}
	}
}

// exitClass is the class of an exit code: one over 128 is a signal, and 137 is SIGKILL, as when memory runs out.
func exitClass(code *int32) string {
	switch {
	case code == nil:
		return "none"
	case *code == 0:
		return "0"
	case *code == 137:
		return "137"
	case *code > 0 && *code < 128:
		return "1-127"
	}
	return "128-255"
}

func count(a action.Action, outcome string) {
	actions.WithLabelValues(a.About().Verb, string(a.Target().Kind), a.About().Because.Code, outcome).Inc()
}

// Wait reports the waits of one read that have an event, once for each object and sentence.
func (r *Reporter) Wait(owner runtime.Object, waiting types.UID, waits ...action.Wait) {
	last, _ := r.waits.Get(waiting)
	before, _ := last.([]string)
	var now []string
	for _, w := range waits {
		if w.Tell == nil || slices.Contains(now, w.Sentence) {
			continue
		}
		if now = append(now, w.Sentence); !slices.Contains(before, w.Sentence) {
			r.event(owner, *w.Tell)
		}
	}
	if len(now) > 0 {
		r.waits.Add(waiting, now)
	}
}

func (r *Reporter) event(owner runtime.Object, e action.Event) {
	kind := map[bool]string{false: corev1.EventTypeNormal, true: corev1.EventTypeWarning}[e.Warning]
	if e.On != nil {
		owner = reference(e.On)
	}
	var related runtime.Object // a nil interface, not a nil pointer in one
	if e.Related != nil {
		related = reference(e.Related)
	}
	r.recorder.Eventf(owner, related, kind, e.Reason, e.Action, "%s", clipped(e.Note))
}

// at is the owner of a plan at a version, which is that of the object of a write. The recorder merges events about one
// version that differ in their notes alone. So each step of a rollout is told, because it finds another version. A write
// that is refused again finds the same: it is told once for each note.
func at(owner client.Object, version string) runtime.Object {
	if set, isSet := owner.(*lwsv1.LeaderWorkerSet); isSet {
		owner = &lwsv1.LeaderWorkerSet{ObjectMeta: set.ObjectMeta} // its status may be large
	}
	about := owner.DeepCopyObject().(client.Object)
	about.SetResourceVersion(version)
	return about
}

// clipped cuts a note to the bytes that the events API accepts, between characters.
func clipped(note string) string {
	note = strings.ToValidUTF8(note, "\uFFFD")
	if len(note) <= noteLimit {
		return note
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(note[:noteLimit-len(ellipsis)], "") + ellipsis
}

func reference(ref *identity.Ref) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: cmp.Or(ref.APIVersion, ref.Kind.APIVersion()), Kind: string(ref.Kind),
		Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
	}
}
