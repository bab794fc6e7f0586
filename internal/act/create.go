package act

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
)

// neverLived is a version that no stored object has. An apply at it, without a UID,
// makes the object where the name is free and is refused where it is taken, by
// whomever, on his way out or not.
const neverLived = "1"

// createApplied makes an object by an apply that can only create. What a POST
// leaves to its manager would have to be turned into applied fields, by a read and
// a write more, before the first real apply.
func (a *Actor) createApplied(ctx context.Context, what action.Create) (Done, error) {
	fields, err := applied(what.Object, what.Target(), neverLived)
	if err != nil {
		return Done{}, err
	}
	err = a.writer.Apply(ctx, fields, client.FieldOwner(fieldOwner), client.ForceOwnership)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return Done{}, &TakenError{Name: what.Target()}
	}
	return Done{UID: uidOf(fields), Generation: generationOf(fields)}, err
}
