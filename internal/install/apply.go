package install

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldManager is who an installation's fields are recorded under. It is not
// the operator's: what the operator writes, the CA bundles, is not ours to
// remove.
const fieldManager = "lockstep-install"

// change is what became of one object.
type change string

const (
	created    change = "created"
	configured change = "configured"
	unchanged  change = "unchanged"
)

// applier writes manifests, or only asks what writing them would do.
type applier struct {
	client client.Client
	dryRun bool
	// removed counts what was deleted.
	removed *int
}

// apply makes one object what the manifest says, and leaves alone what the
// manifest does not mention. It looks again when somebody else wrote meanwhile,
// as the API server does to the status of a new definition.
func (a applier) apply(ctx context.Context, want *unstructured.Unstructured) (what change, err error) {
	what = unchanged
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		did, err := a.applyOnce(ctx, want.DeepCopy())
		if did != unchanged {
			what = did
		}
		return err
	})
	return what, err
}

// applyOnce returns what it did even where it did not get to the end.
func (a applier) applyOnce(ctx context.Context, want *unstructured.Unstructured) (change, error) {
	live, err := a.get(ctx, want)
	if err != nil {
		return unchanged, err
	}
	if live == nil {
		return created, a.write(ctx, want)
	}
	if needsAdoption(live, want) {
		if err := a.adopt(ctx, live, want); err != nil || a.dryRun {
			return configured, err // a dry apply on top would presuppose that it was done
		}
		return configured, a.applyOver(ctx, live, want)
	}
	before := live.DeepCopy()
	if err := a.applyOver(ctx, live, want); err != nil {
		return unchanged, err
	}
	if same(before, want) {
		return unchanged, nil
	}
	return configured, nil
}

func (a applier) applyOver(ctx context.Context, live, want *unstructured.Unstructured) error {
	if err := a.ownByApply(ctx, live); err != nil {
		return fmt.Errorf("take over %s: %w", title(want), err)
	}
	return a.write(ctx, want)
}

// get returns nil for an object that is not there, or whose kind the API server lacks.
func (a applier) get(ctx context.Context, want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(want.GroupVersionKind())
	err := a.client.Get(ctx, client.ObjectKeyFromObject(want), live)
	if unknownKind(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", title(want), err)
	}
	return live, nil
}

func (a applier) write(ctx context.Context, u *unstructured.Unstructured) error {
	options := []client.ApplyOption{client.FieldOwner(fieldManager), client.ForceOwnership}
	if a.dryRun {
		options = append(options, client.DryRunAll)
	}
	err := a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), options...)
	switch {
	case a.dryRun && apierrors.IsNotFound(err) && u.GetNamespace() != "":
		return nil // its namespace would have been created first
	case apierrors.IsInvalid(err):
		return fmt.Errorf("apply %s: %w; if another tool made it, delete it and run install again", title(u), err)
	case err != nil:
		return fmt.Errorf("apply %s: %w", title(u), err)
	}
	return nil
}

// same tells whether a write changed anything that was asked for. The version does not
// tell: it moves with a status, and where the API server only notes anew who wrote what.
func same(before, after *unstructured.Unstructured) bool {
	return reflect.DeepEqual(content(before), content(after))
}

func content(u *unstructured.Unstructured) map[string]any {
	c := u.DeepCopy()
	c.SetManagedFields(nil)
	c.SetGeneration(0)
	c.SetResourceVersion("")
	delete(c.Object, "status")
	return maps.Clone(c.Object)
}
