package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/internal/definition"
)

// A CustomResourceDefinition that lacks a field makes the API server remove the field from each object at its next
// write. Another implementation, or a newer version of this one, may have stored values there. So install compares the
// definitions before it writes anything.

func isDefinition(u *unstructured.Unstructured) bool {
	return u.GetKind() == "CustomResourceDefinition"
}

// keepFields adds to the definitions to install, if the user asks for it, what the live ones have besides.
func (c *cluster) keepFields(ctx context.Context, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	for i, u := range objects {
		if !c.KeepFields || !isDefinition(u) {
			continue
		}
		live, err := c.get(ctx, u)
		if err != nil {
			return nil, err
		}
		if live != nil {
			objects[i] = definition.Union(u, live)
		}
	}
	return objects, nil
}

// refuseLoss returns an error for each CustomResourceDefinition to install that lacks fields of the live one.
func (c *cluster) refuseLoss(ctx context.Context, objects []*unstructured.Unstructured) (lost error) {
	for _, u := range objects {
		if !isDefinition(u) {
			continue
		}
		live, err := c.get(ctx, u)
		if err != nil {
			return err
		}
		if live == nil {
			continue
		}
		sets := &unstructured.UnstructuredList{}
		sets.SetGroupVersionKind(setList)
		if err := c.client.List(ctx, sets); err != nil && !unknownKind(err) {
			return fmt.Errorf("list LeaderWorkerSets: %w", err)
		}
		fields, err := LostFields(live, u, sets.Items)
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

// templates are the schemas of Kubernetes itself within ours. Which fields these have
// depends on the version of Kubernetes that a definition was generated from.
var templates = []string{
	"spec.leaderWorkerTemplate.leaderTemplate.", "spec.leaderWorkerTemplate.workerTemplate.", "spec.leaderWorkerTemplate.volumeClaimTemplates[].",
}

// LostFields returns the property paths of the live storage version that the candidate
// lacks in the version of the same name. In templates only those count that a stored set
// has: another Kubernetes version has other fields, which most sets do not use.
func LostFields(live, candidate *unstructured.Unstructured, sets []unstructured.Unstructured) ([]string, error) {
	from, name, err := definition.SchemaOf(live, "")
	if err != nil || name == "" {
		return nil, err
	}
	to, _, err := definition.SchemaOf(candidate, name)
	if err != nil {
		return nil, err
	}
	if to == nil {
		return []string{"version " + name}, nil
	}
	lost := slices.DeleteFunc(definition.Pruned(definition.Fullest(from), to), func(field string) bool {
		return slices.ContainsFunc(templates, func(prefix string) bool { return strings.HasPrefix(field, prefix) })
	})
	for _, set := range sets {
		lost = append(lost, definition.Pruned(map[string]any{"spec": set.Object["spec"]}, to)...)
	}
	slices.Sort(lost)
	return slices.Compact(lost), nil
}
