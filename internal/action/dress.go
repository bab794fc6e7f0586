package action

import "lockstep.dev/lockstep/internal/identity"

// Dress replaces the finalizers of exactly the living claim or volume, and the
// version, in Object.
type Dress struct {
	Object     identity.Ref
	Finalizers []string
	Because    Reason
	Tell       Telling
}

// Target implements Action.
func (a Dress) Target() identity.Ref { return a.Object }

// Why implements Action.
func (a Dress) Why() Reason { return a.Because }

// Telling implements Action.
func (a Dress) Telling() Telling { return a.Tell }

// Verb implements Action.
func (Dress) Verb() string { return "dress" }
