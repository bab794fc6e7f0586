package action

import "lockstep.dev/lockstep/internal/identity"

// SetFinalizers replaces the finalizers of a living PVC or volume: of the incarnation and
// version in Object.
type SetFinalizers struct {
	Object     identity.Ref
	Finalizers []string
	Because    Reason
	Tell       Telling
}

// Target implements Action.
func (a SetFinalizers) Target() identity.Ref { return a.Object }

// Why implements Action.
func (a SetFinalizers) Why() Reason { return a.Because }

// Telling implements Action.
func (a SetFinalizers) Telling() Telling { return a.Tell }

// Verb implements Action. It is the value of a metric label.
func (SetFinalizers) Verb() string { return "dress" }
