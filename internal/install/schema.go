package install

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/definition"
)

// A CustomResourceDefinition that lacks a field makes the API server remove the field from each object at its next
// write. Another implementation, or a newer version of this one, may have stored values there. So install compares the
// definitions before it writes anything.

func isDefinition(u *unstructured.Unstructured) bool {
	return u.GetKind() == "CustomResourceDefinition"
}

// fit gives the definitions to install what the live ones have besides, if the user asks for it. It returns an error for
// each one that lacks fields of the live one.
func (c *cluster) fit(ctx context.Context, objects []*unstructured.Unstructured) (lost error) {
	for i, u := range objects {
		if !isDefinition(u) {
			continue
		}
		live, err := Live(ctx, c.client, u)
		if err != nil {
			return err
		}
		if live == nil {
			continue
		}
		if c.KeepFields {
			objects[i] = definition.Union(u, live)
		}
		stored, err := c.list(ctx, definition.StoredKind(live))
		if err != nil {
			return err
		}
		fields, err := definition.Lost(live, objects[i], stored)
		if err != nil {
			return fmt.Errorf("compare %s with the live one: %w", title(u), err)
		}
		if len(fields) > 0 {
			lost = errors.Join(lost, fmt.Errorf("%s in the cluster has %d fields that this version of Lockstep lacks, and replacing it would remove them from every object:\n  %s\n"+
				"nothing was installed; keep the implementation that wrote this definition, or install a version of Lockstep that has these fields; "+
				"to keep these fields, and leave alone the sets that use them: --keep-fields; "+
				"to protect PVCs without replacing it: lockstep install --protect-only", title(u), len(fields), strings.Join(fields, "\n  ")))
		}
	}
	return lost
}

// untilServed waits until the API server serves a new kind.
func (c *cluster) untilServed(ctx context.Context, crd *unstructured.Unstructured) error {
	return c.await(ctx, func(ctx context.Context) (string, error) {
		objects := &unstructured.UnstructuredList{}
		objects.SetGroupVersionKind(definition.StoredKind(crd))
		if err := c.client.List(ctx, objects, client.Limit(1)); err != nil {
			return fmt.Sprintf("%s is not served: %v; see its conditions: kubectl get %[1]s -o yaml", title(crd), err), nil
		}
		return "", nil
	})
}
