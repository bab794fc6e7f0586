package pvc

import (
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

var (
	_ action.Action = Release{}
	_ action.Action = Recording{}
	_ action.Action = DropUnused{}
)

// DropUnused removes the condition Unused from the version of a PVC that was judged.
type DropUnused struct{ PVC identity.Ref }

// Target implements action.Action.
func (d DropUnused) Target() identity.Ref { return d.PVC }

// Why implements action.Action.
func (DropUnused) Why() action.Reason {
	return action.Reason{Code: "LeftOver", Sentence: "an earlier version wrote the condition Unused"}
}

// Telling implements action.Action.
func (DropUnused) Telling() action.Telling { return action.Telling{} }

// Verb implements action.Action.
func (DropUnused) Verb() string { return "drop" }

// Telling implements action.Action. An event follows when the PVC is gone.
func (Release) Telling() action.Telling { return action.Telling{} }

// Verb implements action.Action.
func (Release) Verb() string { return "release" }

// Why implements action.Action.
func (r Recording) Why() action.Reason {
	return action.Reason{Code: "UseRecord", Sentence: "pods that may have been bound on the strength of the claim"}
}

// Telling implements action.Action.
func (Recording) Telling() action.Telling { return action.Telling{} }

// Verb implements action.Action.
func (Recording) Verb() string { return "record" }
