package lws

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws/status"
)

// CodeUnsupported is the condition of a set that this version of Lockstep leaves alone.
const CodeUnsupported = "Unsupported"

// unsupportedAgain is how often such a set is read again: no event tells when another
// implementation's objects are gone.
const unsupportedAgain = 30 * time.Second

// unsupportedText says what a set has that this version lacks.
func unsupportedText(beyond []string) string {
	return "Not managed: the set uses fields this version does not support: " + clipped(listed(beyond, ", ")) +
		". Upgrade Lockstep, or remove the fields."
}

// leftAlone writes nothing for a set but its condition with an event, and the conditions that tools
// judge it by. To ignore a field would run the set as its user did not ask.
func (w *SetSnapshot) leftAlone() (p Plan) {
	text := unsupportedText(w.Beyond)
	p.await(w.Now.Add(unsupportedAgain), CodeUnsupported, text)
	told, _ := condition.Of(w.Set.Status.Conditions, CodeUnsupported)
	want := *w.Set.Status.DeepCopy()
	want.ObservedGeneration = w.Set.Generation
	wanted := append(status.Unready(lwsv1.LeaderWorkerSetStalled, CodeUnsupported, text), status.Holding(CodeUnsupported, "UnknownFields", text))
	want.Conditions = status.Kept(want.Conditions, wanted)
	for _, c := range wanted {
		c.ObservedGeneration, c.LastTransitionTime = w.Set.Generation, metav1.NewTime(w.Now)
		meta.SetStatusCondition(&want.Conditions, c)
	}
	if equality.Semantic.DeepEqual(w.Set.Status, want) {
		return p
	}
	write := action.WriteStatus{Set: setRef(w.Set), Status: want, Because: because(CodeUnsupported, text)}
	if told.Status != metav1.ConditionTrue || told.Message != text {
		write.Tell.Done = []action.Event{*warning(CodeUnsupported, "Wait", text, nil)}
	}
	p.do(write)
	return p
}

// IsUnsupported reports whether a plan leaves its set alone.
func (p Plan) IsUnsupported() bool {
	return slices.ContainsFunc(p.Waits, func(w Wait) bool { return w.Code == CodeUnsupported })
}
