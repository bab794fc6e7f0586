package lws

import (
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// adopt makes owner the controller of an orphan. part holds the owner reference
// and nothing else.
func adopt(orphan, owner identity.Ref, part action.Object) action.Apply {
	return action.Apply{
		Object:     part,
		Onto:       orphan,
		FieldOwner: adoptionFieldOwner,
		Adopter:    &owner,
		Because:    because(CodeOrphan, orphan.String()+" has no controller and bears the labels of "+owner.String()),
	}
}
