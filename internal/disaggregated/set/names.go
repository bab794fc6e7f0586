package set

import (
	"fmt"
	"strings"
	"time"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// conflictLook is how soon a set looks again at a foreign object that has one of its names.
const conflictLook = 10 * time.Second

// taken says what keeps the set from a name, or is empty: an object of another owner, or what is left of an earlier
// incarnation. Such an object is never written.
func taken[T action.Object](kind identity.Kind, claim identity.Claim[T], name string) (conflict string, isPrevious bool) {
	found := claim.Named(name)
	switch {
	case len(found.Previous) > 0:
		return fmt.Sprintf("%s %s of an earlier incarnation is being deleted", kind, name), true
	case len(found.Orphans) > 0:
		return fmt.Sprintf("%s %s bears the labels of this set and has no owner; delete it, or give the set another name", kind, name), false
	case len(found.Foreign) > 0:
		return fmt.Sprintf("%s %s exists but is not controlled by this DisaggregatedSet; delete it, or give the set another name", kind, name), false
	}
	return "", false
}

// awaitName waits for a name that the set needs, and tells the event where something else has it. It reports whether the
// name is free.
func (in *input) awaitName(p *action.Plan, conflict string, isPrevious bool, isTaken *action.Event) (isFree bool) {
	switch {
	case conflict == "":
		return true
	case isPrevious:
		p.Wait(action.Wait{Reason: action.Because(action.CodePreviousIncarnation, conflict)})
		return false
	}
	if !strings.Contains(in.conflicts, conflict) {
		in.conflicts = strings.TrimPrefix(in.conflicts+"; "+conflict, "; ")
	}
	if isTaken == nil {
		isTaken = &action.Event{Warning: true, Reason: "NameConflict", Action: "Wait", Note: conflict}
	}
	p.Wait(action.Wait{Reason: action.Because(action.CodeNameConflict, conflict), Tell: isTaken})
	return false
}
