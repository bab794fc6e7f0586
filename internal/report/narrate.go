// Package report is the one place that speaks: events for users, metrics for
// dashboards, one log line for each decision.
//
// It knows how to put what was done into those three forms. It refuses to know
// why, beyond the reason that came with the decision, and never tells of a pass
// that merely has to look again.
package report

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/lru"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// noteLimit is the most bytes that the events API takes in a note.
const noteLimit = 1024

// actions counts what was written, by form, kind, reason and outcome.
var actions = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "lockstep_actions_total",
	Help: "Writes decided by Lockstep, by verb, kind, reason and outcome (done, stale, failed).",
}, []string{"verb", "kind", "reason", "outcome"})

// restarts counts failures of groups as they are written down: each once.
var restarts = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "lockstep_group_restarts_total",
	Help: "Failures of groups that are answered by recreating them, by what happened to it (PodRestarted, PodEnded, PodDeleted, PodGone, StatefulSetDeleted, LeaderReplaced).",
}, []string{"failure"})

// Metrics returns the metrics that a Narrator counts in.
func Metrics() []prometheus.Collector { return []prometheus.Collector{actions, restarts} }

// Narrator tells what was done. It is safe for concurrent use.
type Narrator struct {
	recorder events.EventRecorder

	// told holds the words of the waits told last, by who waits.
	told *lru.Cache
	// notes keeps events apart that differ in their words alone.
	notes notes
}

// remembered bounds how many waits are known to have been told.
const remembered = 10_000

// New returns a Narrator that records events through recorder.
func New(recorder events.EventRecorder) *Narrator {
	return &Narrator{recorder: recorder, told: lru.New(remembered), notes: notes{sets: lru.New(remembered)}}
}

// Tell tells what became of an action on behalf of owner.
func (n *Narrator) Tell(ctx context.Context, owner runtime.Object, a action.Action, err error) {
	log := logr.FromContextOrDiscard(ctx).WithValues(
		"verb", a.Verb(), "object", a.Target().String(), "reason", a.Why().Code, "because", a.Why().Sentence)
	switch {
	case errors.Is(err, apply.ErrStale):
		n.count(a, "stale")
		log.V(1).Info("looking again", "refusal", err.Error())
	case errors.Is(err, context.Canceled): // by the end of the process: it may well have been done
	case err != nil:
		n.count(a, "failed")
		if refused := a.Telling().Refused; refused != nil {
			event := *refused
			event.Note += ": " + err.Error()
			n.event(owner, event)
		}
	default:
		n.count(a, "done")
		for _, failure := range a.Telling().Failures {
			restarts.WithLabelValues(failure).Inc()
		}
		log.Info("done")
		for _, event := range a.Telling().Done {
			n.event(owner, event)
		}
	}
}

// Wait tells of those waits of one look that users are to hear of, once for each object
// waiting for as long as the words stay the same.
func (n *Narrator) Wait(owner runtime.Object, waiting types.UID, waits ...lws.Wait) {
	last, _ := n.told.Get(waiting)
	before, _ := last.([]string)
	var now []string
	for _, w := range waits {
		if w.Tell == nil || slices.Contains(now, w.Sentence) {
			continue
		}
		if now = append(now, w.Sentence); !slices.Contains(before, w.Sentence) {
			n.event(owner, *w.Tell)
		}
	}
	if len(now) > 0 {
		n.told.Add(waiting, now)
	}
}

func (n *Narrator) count(a action.Action, outcome string) { count(a, outcome) }

func count(a action.Action, outcome string) {
	actions.WithLabelValues(a.Verb(), string(a.Target().Kind), a.Why().Code, outcome).Inc()
}

func (n *Narrator) event(owner runtime.Object, e action.Event) {
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	n.recorder.Eventf(n.notes.regarding(owner, e), related(e.Related), kind, e.Reason, e.Action, "%s", clipped(e.Note))
}

// clipped cuts a note to what the events API takes. It counts bytes, as the API
// does, and never cuts a character.
func clipped(note string) string {
	note = strings.ToValidUTF8(note, "\uFFFD")
	if len(note) <= noteLimit {
		return note
	}
	const ellipsis = "…"
	end := noteLimit - len(ellipsis)
	for !utf8.RuneStart(note[end]) {
		end--
	}
	return note[:end] + ellipsis
}

// related is a reference that the recorder takes as it is. It must be a nil
// interface, not a nil pointer in one, when there is nothing to relate to.
func related(ref *identity.Ref) runtime.Object {
	if ref == nil {
		return nil
	}
	version := cmp.Or(ref.APIVersion, "v1")
	if ref.Kind == identity.KindControllerRevision || ref.Kind == identity.KindStatefulSet {
		version = "apps/v1"
	}
	return &corev1.ObjectReference{
		APIVersion: version, Kind: string(ref.Kind),
		Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
	}
}
