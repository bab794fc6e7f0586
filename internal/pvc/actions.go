package pvc

import "lockstep.dev/lockstep/internal/action"

// Both writes are actions, so that they are carried out and told of like others.
var (
	_ action.Action = Release{}
	_ action.Action = Recording{}
)

// Telling implements action.Action: who asked is told when the claim has gone.
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
