package action

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/identity"
)

// Tie makes Owners all the owners of exactly the incarnation and version in
// Object, a volume claim, and changes nothing else of it. What a claim belongs to
// decides when the garbage collector takes it; nothing here ever does.
type Tie struct {
	Object identity.Ref
	Owners []metav1.OwnerReference
	// To, when set, is an owner that the claim did not have. It is read live before
	// the write: same UID, not terminating. A claim tied to what is gone would go.
	To *identity.Ref
	// Annotations are set, or removed where they are empty.
	Annotations map[string]string
	Because     Reason
	Tell        Telling
}

// Target implements Action.
func (a Tie) Target() identity.Ref { return a.Object }

// Why implements Action.
func (a Tie) Why() Reason { return a.Because }

// Telling implements Action.
func (a Tie) Telling() Telling { return a.Tell }

// Verb implements Action.
func (Tie) Verb() string { return "tie" }
