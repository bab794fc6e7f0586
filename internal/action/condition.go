package action

import (
	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/identity"
)

// Condition replaces one condition of exactly the living claim, and the version, in
// Claim, and nothing else of its status.
type Condition struct {
	Claim   identity.Ref
	Is      corev1.PersistentVolumeClaimCondition
	Because Reason
	Tell    Telling
}

// Target implements Action.
func (a Condition) Target() identity.Ref { return a.Claim }

// Why implements Action.
func (a Condition) Why() Reason { return a.Because }

// Telling implements Action.
func (a Condition) Telling() Telling { return a.Tell }

// Verb implements Action.
func (Condition) Verb() string { return "condition" }
