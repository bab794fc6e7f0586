package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// create creates an object. A PVC of the name serves, whoever created it, as it would the
// StatefulSet controller. No read waits for the cache to show PVCs, or objects of kinds that need
// not be served.
func (a *Actor) create(ctx context.Context, what action.Create) error {
	if err := a.alive(ctx, what.Owner); err != nil {
		return err
	}
	if what.Kind == identity.KindStatefulSet && what.Owner.Kind == identity.KindLeaderWorkerSet {
		return a.createApplied(ctx, what)
	}
	object, ok := what.Object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("create %s: not an API object: %T", what.Target(), what.Object)
	}
	isPVC, mayBeUnserved := what.Kind == identity.KindPersistentVolumeClaim, what.Target().APIVersion != ""
	options := []client.CreateOption{client.FieldOwner(fieldOwner)}
	if isPVC || mayBeUnserved {
		options = append(options, client.DisableReadYourWritesConsistency)
	}
	err := a.writer.Create(ctx, object, options...)
	switch {
	case err == nil || denied(err):
		return err
	case apierrors.IsAlreadyExists(err) && isPVC:
		return nil
	case apierrors.IsAlreadyExists(err):
		return &TakenError{Name: what.Target()}
	case mayBeUnserved && (apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err)):
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return err
}

// neverLived is a resourceVersion that no stored object has. An apply at it, without a UID,
// creates the object if the name is free, and is refused otherwise.
const neverLived = "1"

// createApplied creates a set's StatefulSet by an apply that can only create. It is applied to for
// as long as it exists: fields that a POST leaves to its manager would first have to be turned into
// applied ones, by a read and a write more. If the name is taken, nothing is written.
func (a *Actor) createApplied(ctx context.Context, what action.Create) error {
	switch _, err := a.read(ctx, what.Target()); {
	case err == nil:
		return &TakenError{Name: what.Target()}
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look for %s: %w", what.Target(), err)
	}
	fields, err := applied(what.Object, what.Target(), neverLived)
	if err != nil {
		return err
	}
	err = a.writer.Apply(ctx, fields, client.FieldOwner(fieldOwner), client.ForceOwnership)
	if (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)) && !denied(err) {
		return &TakenError{Name: what.Target()}
	}
	return err
}
