package install

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldManager is the manager of everything that install writes. An object that has no
// field of it is another implementation's, or a user's.
const fieldManager = "lockstep-install"

// change is what became of one object.
type change string

const (
	created    change = "created"
	configured change = "configured"
	unchanged  change = "unchanged"
)

// apply creates an object, or makes it what the manifest says.
func (c *cluster) apply(ctx context.Context, want *unstructured.Unstructured) (what change, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live, err := c.get(ctx, want)
		if err == nil && live != nil && live.GetDeletionTimestamp() != nil && !c.DryRun {
			c.say("waiting for %s, which is being deleted", title(want))
			live, err = nil, c.untilGone(ctx, want)
		}
		if err != nil {
			return err
		}
		if live == nil {
			what = created
			return c.create(ctx, want.DeepCopy())
		}
		what, err = c.replace(ctx, live, want)
		return err
	})
	switch {
	case apierrors.IsInvalid(err):
		return what, fmt.Errorf("apply %s: %w; if another tool made it, delete it and run install again", title(want), err)
	case err != nil:
		return what, fmt.Errorf("apply %s: %w", title(want), err)
	}
	return what, nil
}

func (c *cluster) create(ctx context.Context, u *unstructured.Unstructured) error {
	if u.GetKind() == "Namespace" {
		u.SetAnnotations(map[string]string{createdHere: "true"})
	}
	err := c.client.Create(ctx, u, append(dry[client.CreateOption](c.DryRun), client.FieldOwner(fieldManager))...)
	if c.DryRun && apierrors.IsNotFound(err) && u.GetNamespace() != "" {
		return nil // its namespace would have been created first
	}
	return err
}

// replace writes each field of a manifest as a whole, for the version that was read.
// Another implementation, or a user, may have written under our names. A merge would leave
// a Service beside a URL, a webhook on a path that is gone, a policy with one condition
// more. The API server writes nothing if nothing changes.
func (c *cluster) replace(ctx context.Context, live, want *unstructured.Unstructured) (change, error) {
	next := live.DeepCopy()
	for field, value := range want.DeepCopy().Object {
		if field != "metadata" {
			next.Object[field] = value
		}
	}
	next.SetLabels(merged(live.GetLabels(), want.GetLabels()))
	next.SetAnnotations(merged(live.GetAnnotations(), want.GetAnnotations()))
	keepAllocated(next, live)
	err := c.client.Update(ctx, next, append(dry[client.UpdateOption](c.DryRun), client.FieldOwner(fieldManager))...)
	if err != nil || reflect.DeepEqual(content(live), content(next)) {
		return unchanged, err
	}
	return configured, nil
}

// keepAllocated copies what others write into the fields of a manifest: the API server
// gives a Service its address, and the operator gives a webhook its CA bundle.
func keepAllocated(to, from *unstructured.Unstructured) {
	if to.GetKind() == "Service" {
		spec := maps.Clone(from.Object["spec"].(map[string]any))
		maps.Copy(spec, to.Object["spec"].(map[string]any))
		to.Object["spec"] = spec
	}
	bundles := map[any]string{}
	for _, hook := range webhooksOf(from) {
		bundles[hook["name"]], _, _ = unstructured.NestedString(hook, "clientConfig", "caBundle")
	}
	for _, hook := range webhooksOf(to) {
		if connection, ok := hook["clientConfig"].(map[string]any); ok && bundles[hook["name"]] != "" {
			connection["caBundle"] = bundles[hook["name"]]
		}
	}
}

// dry returns the option of a dry run, if it is one.
func dry[T any](dryRun bool) []T {
	if !dryRun {
		return nil
	}
	return []T{any(client.DryRunAll).(T)}
}

func merged(x, y map[string]string) map[string]string {
	all := maps.Clone(x)
	if all == nil {
		return y
	}
	maps.Copy(all, y)
	return all
}

// get returns nil for an object that does not exist, or whose kind the API server lacks.
func (c *cluster) get(ctx context.Context, want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(want.GroupVersionKind())
	err := c.client.Get(ctx, client.ObjectKeyFromObject(want), live)
	if unknownKind(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", title(want), err)
	}
	return live, nil
}

// content leaves out what an API server writes: a status moves the resourceVersion.
func content(u *unstructured.Unstructured) map[string]any {
	c := u.DeepCopy()
	c.SetManagedFields(nil)
	c.SetGeneration(0)
	c.SetResourceVersion("")
	delete(c.Object, "status")
	return c.Object
}

// isOurs reports whether install wrote fields of an object.
func isOurs(u *unstructured.Unstructured) bool {
	return slices.ContainsFunc(u.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == fieldManager && e.Subresource == ""
	})
}
