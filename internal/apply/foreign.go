package apply

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// Objects of foreign kinds are those whose references name an API version. They
// are written as they are, and no look waits for a cache to show them: whether
// their kind is served at all may change at any time.

// createForeign makes an object of a foreign kind. A kind that is not served any
// more has changed since the look.
func (a *Actor) createForeign(ctx context.Context, what action.Create, object client.Object) (Done, error) {
	err := a.writer.Create(ctx, object, client.FieldOwner(fieldOwner), client.DisableReadYourWritesConsistency)
	switch {
	case denied(err):
	case apierrors.IsAlreadyExists(err):
		return Done{}, &TakenError{Name: what.Target()}
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err), meta.IsNoMatchError(err):
		return Done{}, fmt.Errorf("%w: %w", ErrStale, err)
	}
	return Done{UID: object.GetUID(), Generation: object.GetGeneration()}, err
}

func foreign(ref identity.Ref) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(ref.APIVersion)
	object.SetKind(string(ref.Kind))
	object.SetNamespace(ref.Namespace)
	object.SetName(ref.Name)
	object.SetUID(ref.UID)
	return object
}

func appliedForeign(encoded []byte) (runtime.ApplyConfiguration, error) {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(encoded, object); err != nil {
		return nil, err
	}
	return client.ApplyConfigurationFromUnstructured(object), nil
}

// patchOptions are those for the upgrade of managed fields.
func patchOptions(onto identity.Ref) []client.PatchOption {
	if onto.APIVersion == "" {
		return nil
	}
	return []client.PatchOption{client.DisableReadYourWritesConsistency}
}
