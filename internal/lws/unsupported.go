package lws

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws/status"
)

// CodeUnsupported is the condition of a set that this version of Lockstep leaves alone.
const CodeUnsupported = "Unsupported"

// unsupportedAgain is how often such a set is read again: no event tells when another
// implementation's objects are gone.
const unsupportedAgain = 30 * time.Second

// unsupportedText says what a set has that this version lacks, or is empty.
func unsupportedText(beyond []string) string {
	if len(beyond) == 0 {
		return ""
	}
	return "this version of Lockstep lacks what the set has, and leaves the set and its groups as they are: " + clipped(listed(beyond, ", ")) +
		"; upgrade Lockstep, run the implementation that the set was made for, or remove the fields"
}

// leftAlone writes nothing for a set but one condition with its event. To ignore a field would
// run the set as its user did not ask.
func (w *SetSnapshot) leftAlone() (p Plan) {
	text := unsupportedText(w.Beyond)
	p.await(w.Now.Add(unsupportedAgain), CodeUnsupported, text)
	told, _ := condition.Of(w.Set.Status.Conditions, CodeUnsupported)
	if condition.IsTrue(w.Set.Status.Conditions, CodeUnsupported) && told.Message == text {
		return p
	}
	want := *w.Set.Status.DeepCopy()
	holds := status.Holding(CodeUnsupported, "UnknownFields", text)
	holds.ObservedGeneration = w.Set.Generation
	meta.SetStatusCondition(&want.Conditions, holds)
	p.do(action.WriteStatus{
		Set: setRef(w.Set), Status: want, Because: because(CodeUnsupported, text),
		Tell: action.Telling{Done: []action.Event{*warning(CodeUnsupported, "Wait", text, nil)}},
	})
	return p
}

// IsUnsupported reports whether a plan leaves its set alone.
func (p Plan) IsUnsupported() bool {
	return slices.ContainsFunc(p.Waits, func(w Wait) bool { return w.Code == CodeUnsupported })
}
