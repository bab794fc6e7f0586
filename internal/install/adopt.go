package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Another implementation may have left its definition, its webhook configurations
// and its Deployment under our names. An apply on top would merge the two: a
// conversion webhook nobody serves, a Service beside a URL, a webhook on a path
// that is gone, a volume of a configuration that nobody reads. So those kinds are first made exactly what the manifest says, in
// one write for the version that was read, without a moment in which they are
// absent; and their fields become ours, so that later versions can drop them.

// governed is the field whose whole content belongs to us, by kind.
var governed = map[string]string{
	"CustomResourceDefinition":       "spec",
	"Deployment":                     "spec",
	"MutatingWebhookConfiguration":   "webhooks",
	"ValidatingWebhookConfiguration": "webhooks",

	"MutatingAdmissionPolicy":          "spec",
	"MutatingAdmissionPolicyBinding":   "spec",
	"ValidatingAdmissionPolicy":        "spec",
	"ValidatingAdmissionPolicyBinding": "spec",
}

// needsAdoption is true for what somebody else applied, for webhooks of ours with
// entries that we do not want, and for policies of ours that somebody has edited: one
// condition more, and a policy refuses nobody.
func needsAdoption(live, want *unstructured.Unstructured) bool {
	if governed[want.GetKind()] == "" {
		return false
	}
	return !slices.ContainsFunc(live.GetManagedFields(), isOurApply) || !slices.Equal(hookNames(live), hookNames(want)) ||
		strings.Contains(want.GetKind(), "AdmissionPolicy") && isEdited(live, governed[want.GetKind()])
}

// isEdited tells whether somebody else owns a part of a field.
func isEdited(live *unstructured.Unstructured, field string) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager != fieldManager && e.Subresource == "" && e.FieldsV1 != nil && strings.Contains(e.FieldsV1.String(), `"f:`+field+`"`)
	})
}

func isOurApply(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == fieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
}

func isOurUpdate(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == fieldManager && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
}

func hookNames(u *unstructured.Unstructured) []string {
	hooks, err := webhooksOf(u)
	if err != nil {
		return nil
	}
	var names []string
	for _, hook := range hooks {
		name, _ := hook["name"].(string)
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// adopt makes live exactly what want says, and nobody else the owner of it.
func (a applier) adopt(ctx context.Context, live, want *unstructured.Unstructured) error {
	field := governed[want.GetKind()]
	old := live.DeepCopy()
	live.Object[field] = want.DeepCopy().Object[field]
	if err := keepBundles(live, old); err != nil {
		return err
	}
	live.SetManagedFields(withoutOthers(old, field))
	options := []client.UpdateOption{client.FieldOwner(fieldManager)}
	if a.dryRun {
		options = append(options, client.DryRunAll)
	}
	if err := a.client.Update(ctx, live, options...); err != nil {
		return fmt.Errorf("take over %s: %w", title(want), err)
	}
	return nil
}

// ownByApply turns what we own by an update, that of adopt, into what we own by
// apply. An apply never removes what an update of the same name owns.
func (a applier) ownByApply(ctx context.Context, live *unstructured.Unstructured) error {
	if a.dryRun || !slices.ContainsFunc(live.GetManagedFields(), isOurUpdate) {
		return nil
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(live, sets.New(fieldManager), fieldManager)
	if err != nil || len(patch) == 0 {
		return err
	}
	return a.client.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch))
}

// withoutOthers leaves the records of subresources alone and replaces all else
// by one of ours. It must not be empty: the first apply on an object without
// records gives all its fields to an owner of their own.
func withoutOthers(live *unstructured.Unstructured, field string) []metav1.ManagedFieldsEntry {
	kept := slices.DeleteFunc(slices.Clone(live.GetManagedFields()), func(e metav1.ManagedFieldsEntry) bool {
		return e.Subresource == ""
	})
	return append(kept, metav1.ManagedFieldsEntry{
		Manager:    fieldManager,
		Operation:  metav1.ManagedFieldsOperationApply,
		APIVersion: live.GetAPIVersion(),
		FieldsType: "FieldsV1",
		FieldsV1:   metav1.NewFieldsV1(`{"f:` + field + `":{}}`),
	})
}

// keepBundles carries the CA bundles over by name: they are the operator's, and
// without them the API server would refuse it.
func keepBundles(to, from *unstructured.Unstructured) error {
	old, err := webhooksOf(from)
	if err != nil || len(old) == 0 {
		return err
	}
	bundles := map[any]any{}
	for _, hook := range old {
		bundle, found, err := unstructured.NestedString(hook, "clientConfig", "caBundle")
		if err != nil {
			return err
		}
		if found {
			bundles[hook["name"]] = bundle
		}
	}
	hooks, err := webhooksOf(to)
	if err != nil {
		return err
	}
	for _, hook := range hooks {
		bundle, found := bundles[hook["name"]]
		if connection, ok := hook["clientConfig"].(map[string]any); ok && found {
			connection["caBundle"] = bundle
		}
	}
	return setWebhooks(to, hooks)
}
