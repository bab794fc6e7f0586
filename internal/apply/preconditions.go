package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// alive reads an owner live, once in a reconcile: the same UID, without deletionTimestamp.
func (a *Actor) alive(ctx context.Context, owner identity.Ref) error {
	if a.found != nil {
		if _, known := a.found.Load(owner.UID); known {
			return nil
		}
	}
	found, err := a.read(ctx, owner)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s is gone: %w", owner, ErrStale)
	case err != nil:
		return fmt.Errorf("look for owner %s: %w", owner, err)
	case found.UID != owner.UID:
		return fmt.Errorf("%s is another incarnation now: %w", owner, ErrStale)
	case found.DeletionTimestamp != nil:
		return fmt.Errorf("%s is being deleted: %w", owner, ErrStale)
	}
	a.foundAlive(found)
	return nil
}

// foundAlive spares the reconcile a read of an object that the API server has just answered with.
func (a *Actor) foundAlive(object metav1.Object) {
	if a.found != nil && object.GetDeletionTimestamp() == nil {
		a.found.Store(object.GetUID(), true)
	}
}

// gone reads live that the incarnation of an owner does not exist. A version that is no longer
// served shows nothing: the owner may exist in another.
func (a *Actor) gone(ctx context.Context, owner identity.Ref) error {
	found, err := a.read(ctx, owner)
	switch {
	case apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return nil
	case err != nil:
		return fmt.Errorf("look for owner %s: %w", owner, err)
	case found.UID == owner.UID:
		return fmt.Errorf("%s is still there: %w", owner, ErrStale)
	}
	return nil
}

// unchanged reads an object live that must still be the version that was judged.
func (a *Actor) unchanged(ctx context.Context, onto identity.Ref) (*metav1.PartialObjectMetadata, error) {
	found, err := a.read(ctx, onto)
	if err == nil && (found.UID != onto.UID || found.ResourceVersion != onto.ResourceVersion) {
		err = fmt.Errorf("%s changed: %w", onto, ErrStale)
	}
	return found, quiet(err)
}

// reliable reads what an apply relies on and, before and after, whether the object to write is
// unchanged: one that changes with every status of its controller would mostly be refused.
func (a *Actor) reliable(ctx context.Context, what action.Apply) error {
	_, err := a.unchanged(ctx, what.Onto)
	if err == nil {
		err = a.standing(ctx, what.Relies)
	}
	if err == nil {
		_, err = a.unchanged(ctx, what.Onto)
	}
	return err
}

// standing reads whether everything that a write relies on still holds.
func (a *Actor) standing(ctx context.Context, relied []action.Standing) error {
	for _, s := range relied {
		now, err := a.meant(ctx, s)
		if err != nil {
			return err
		}
		if broken := s.Broken(now); broken != "" {
			return fmt.Errorf("%s: %w", broken, ErrStale)
		}
	}
	return nil
}

// meant reads live the metadata of all objects of the kind, in the namespace and with the name and labels of what a write
// relies on.
func (a *Actor) meant(ctx context.Context, relied action.Standing) ([]metav1.ObjectMeta, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: relied.Kind.APIVersion(), Kind: string(relied.Kind) + "List"}}
	options := []client.ListOption{client.InNamespace(relied.Namespace), client.MatchingLabels(relied.Labels)}
	if relied.Name != "" {
		options = append(options, client.MatchingFields{metav1.ObjectNameField: relied.Name})
	}
	if err := a.live.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("list what a write relies on: %w", err)
	}
	found := make([]metav1.ObjectMeta, 0, len(list.Items))
	for i := range list.Items {
		found = append(found, list.Items[i].ObjectMeta)
	}
	return found, nil
}

// read reads the metadata of an object live.
func (a *Actor) read(ctx context.Context, ref identity.Ref) (*metav1.PartialObjectMetadata, error) {
	found := metadataOf(ref)
	return found, a.live.Get(ctx, client.ObjectKeyFromObject(found), found)
}

// metadataOf returns an object of the kind and the name. Written in this form, an object starts no cache of its kind.
func metadataOf(ref identity.Ref) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: cmp.Or(ref.APIVersion, ref.Kind.APIVersion()), Kind: string(ref.Kind)},
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
	}
}

// quiet turns refusals that mean "the cluster changed" into ErrStale.
func quiet(err error) error {
	if (apierrors.IsConflict(err) || apierrors.IsNotFound(err) || anotherIncarnation(err)) && !denied(err) {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return err
}

// denied reports whether an admission webhook refused a write. It may do so with any code: another
// read would not show why.
func denied(err error) bool {
	return err != nil && strings.Contains(err.Error(), "denied the request")
}

// anotherIncarnation reports whether the API server refused a write because the object with the
// name has another UID now.
func anotherIncarnation(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}
