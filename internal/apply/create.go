package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// neverLived is a version that no stored object has. An apply at it, without a UID,
// makes the object where the name is free and is refused where it is taken, by
// whomever, on his way out or not.
const neverLived = "1"

// createsApplied tells whether an object is made by an apply. A set's StatefulSet is,
// because it is applied to for as long as it lives: what a POST leaves to its manager
// would first have to be turned into applied fields, by a read and a write more. That
// of a group's workers is made once and for all.
func createsApplied(what action.Create) bool {
	return what.Kind == identity.KindStatefulSet && what.Owner.Kind == identity.KindLeaderWorkerSet
}

// createApplied makes an object by an apply that can only create. It looks first
// whether the name is free: on what somebody else bears it for, not even a write is
// tried that is sure to be refused.
func (a *Actor) createApplied(ctx context.Context, what action.Create) (Done, error) {
	switch _, err := a.look(ctx, what.Target()); {
	case err == nil:
		return Done{}, &TakenError{Name: what.Target()}
	case !apierrors.IsNotFound(err):
		return Done{}, fmt.Errorf("look for %s: %w", what.Target(), err)
	}
	fields, err := applied(what.Object, what.Target(), neverLived)
	if err != nil {
		return Done{}, err
	}
	err = a.writer.Apply(ctx, fields, client.FieldOwner(fieldOwner), client.ForceOwnership)
	if (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)) && !denied(err) {
		return Done{}, &TakenError{Name: what.Target()}
	}
	return Done{UID: uidOf(fields), Generation: generationOf(fields)}, err
}
