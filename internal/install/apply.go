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

// fieldManager owns the fields of an installation. The operator's writes, those of CA
// bundles for example, have another manager, and survive an apply.
const fieldManager = "lockstep-install"

// change is what became of one object.
type change string

const (
	created    change = "created"
	configured change = "configured"
	unchanged  change = "unchanged"
)

// replaced are the fields that belong to install as a whole, by kind. Another
// implementation, or a user, may have written them under our names. A server-side apply
// would merge the two: a Service beside a URL, a webhook on a path that is gone, a policy
// with one condition more. So they are replaced, in one write for the version that was read.
var replaced = map[string]string{
	"CustomResourceDefinition":         "spec",
	"Deployment":                       "spec",
	"MutatingWebhookConfiguration":     "webhooks",
	"ValidatingWebhookConfiguration":   "webhooks",
	"MutatingAdmissionPolicy":          "spec",
	"MutatingAdmissionPolicyBinding":   "spec",
	"ValidatingAdmissionPolicy":        "spec",
	"ValidatingAdmissionPolicyBinding": "spec",
}

// applier writes manifests, or only asks what writing them would do.
type applier struct {
	client client.Client
	dryRun bool
	// removed counts deletions.
	removed *int
}

// apply makes one object what the manifest says, and keeps what it does not mention.
func (a applier) apply(ctx context.Context, want *unstructured.Unstructured) (what change, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live, err := a.get(ctx, want)
		if err != nil {
			return err
		}
		if what = created; live == nil {
			return a.serverSideApply(ctx, want.DeepCopy(), a.dryRun)
		}
		what, err = a.update(ctx, live, want)
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

// update asks by a dry run what a write would change, and writes if it changes anything.
func (a applier) update(ctx context.Context, live, want *unstructured.Unstructured) (change, error) {
	write := func(u *unstructured.Unstructured, dryRun bool) error { return a.serverSideApply(ctx, u, dryRun) }
	next := want.DeepCopy()
	if field := replaced[want.GetKind()]; field != "" {
		next = live.DeepCopy()
		next.Object[field] = want.DeepCopy().Object[field]
		next.SetLabels(merged(live.GetLabels(), want.GetLabels()))
		next.SetAnnotations(merged(live.GetAnnotations(), want.GetAnnotations()))
		keepBundles(next, live)
		write = func(u *unstructured.Unstructured, dryRun bool) error {
			return a.client.Update(ctx, u, append(dry[client.UpdateOption](dryRun), client.FieldOwner(fieldManager))...)
		}
	}
	result := next.DeepCopy()
	if err := write(result, true); err != nil {
		return unchanged, err
	}
	if reflect.DeepEqual(content(live), content(result)) {
		return unchanged, nil
	}
	if a.dryRun {
		return configured, nil
	}
	return configured, write(next, false)
}

func (a applier) serverSideApply(ctx context.Context, u *unstructured.Unstructured, dryRun bool) error {
	options := append(dry[client.ApplyOption](dryRun), client.FieldOwner(fieldManager), client.ForceOwnership)
	err := a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), options...)
	if dryRun && apierrors.IsNotFound(err) && u.GetNamespace() != "" {
		return nil // its namespace would have been created first
	}
	return err
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

// keepBundles copies CA bundles by the name of the webhook: the operator wrote them.
func keepBundles(to, from *unstructured.Unstructured) {
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
