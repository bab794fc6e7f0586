package action

import "lockstep.dev/lockstep/internal/identity"

// Annotate changes annotations of exactly the incarnation and version in Object, and
// nothing else.
type Annotate struct {
	Object identity.Ref
	// Annotations are those to change. An empty value takes the annotation away.
	Annotations map[string]string
	Because     Reason
	Tell        Telling
}

// Target implements Action.
func (a Annotate) Target() identity.Ref { return a.Object }

// Why implements Action.
func (a Annotate) Why() Reason { return a.Because }

// Telling implements Action.
func (a Annotate) Telling() Telling { return a.Tell }

// Verb implements Action.
func (Annotate) Verb() string { return "annotate" }
