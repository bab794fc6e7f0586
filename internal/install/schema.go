package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// A CustomResourceDefinition that lacks a field makes the API server remove the field from
// each object at its next write. Another implementation, or a newer version of this one,
// may have stored values there. So install compares the definitions before it writes
// anything.

func isDefinition(u *unstructured.Unstructured) bool {
	return u.GetKind() == "CustomResourceDefinition"
}

// refuseLoss returns an error for each CustomResourceDefinition to install that lacks
// fields of the live one.
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
		fields, err := lostFields(live, u, sets.Items)
		if err != nil {
			return fmt.Errorf("compare %s with the live one: %w", title(u), err)
		}
		if len(fields) > 0 {
			lost = errors.Join(lost, fmt.Errorf("%s in the cluster has %d fields that this version of Lockstep lacks, and replacing it would remove them from every object:\n  %s\n"+
				"nothing was installed; keep the implementation that wrote this definition, or install a version of Lockstep that has these fields; "+
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

func inTemplate(field string) bool {
	return slices.ContainsFunc(templates, func(prefix string) bool { return strings.HasPrefix(field, prefix) })
}

// lostFields returns the property paths of the live storage version that the candidate
// lacks in the version of the same name. In templates only those count that a stored set
// has: another Kubernetes version has other fields, which most sets do not use.
func lostFields(live, candidate *unstructured.Unstructured, sets []unstructured.Unstructured) ([]string, error) {
	from, name, err := schemaOf(live, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if err != nil || name == "" {
		return nil, err
	}
	to, _, err := schemaOf(candidate, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name })
	if err != nil {
		return nil, err
	}
	if to == nil {
		return []string{"version " + name}, nil
	}
	lost := slices.DeleteFunc(pruned(fullest(from), to, ""), inTemplate)
	for _, set := range sets {
		lost = append(lost, pruned(map[string]any{"spec": set.Object["spec"]}, to, "")...)
	}
	slices.Sort(lost)
	return slices.Compact(lost), nil
}

// schemaOf returns the schema and the name of one version, without what the API server
// keeps whatever a schema says.
func schemaOf(u *unstructured.Unstructured, is func(apiextensionsv1.CustomResourceDefinitionVersion) bool) (*apiextensionsv1.JSONSchemaProps, string, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, crd); err != nil {
		return nil, "", err
	}
	i := slices.IndexFunc(crd.Spec.Versions, is)
	if i < 0 {
		return nil, "", nil
	}
	version := crd.Spec.Versions[i]
	if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
		return nil, version.Name, nil
	}
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(version.Schema.OpenAPIV3Schema.Properties, name)
	}
	return version.Schema.OpenAPIV3Schema, version.Name, nil
}

// anything stands for each key of a map, and for what a schema keeps unread.
const anything = "*"

// fullest returns a value that has everything a schema describes.
func fullest(s *apiextensionsv1.JSONSchemaProps) any {
	switch {
	case s == nil:
		return nil
	case s.Items != nil:
		return []any{fullest(s.Items.Schema)}
	}
	all := map[string]any{}
	if s.AdditionalProperties != nil || keepsAnything(s) {
		all[anything] = fullest(child(s, anything))
	}
	for name, property := range s.Properties {
		all[name] = fullest(&property)
	}
	return all
}

// pruned returns the paths of a value that the API server removes under a schema.
func pruned(value any, s *apiextensionsv1.JSONSchemaProps, at string) (lost []string) {
	if keepsAnything(s) {
		return nil
	}
	if s == nil {
		lost = []string{strings.TrimPrefix(at, ".")}
	}
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			lost = append(lost, pruned(item, child(s, "[]"), at+"[]")...)
		}
	case map[string]any:
		for name, inner := range value {
			lost = append(lost, pruned(inner, child(s, name), at+"."+name)...)
		}
	}
	return lost
}

// keepsAnything reports whether the API server prunes nothing below a schema.
func keepsAnything(s *apiextensionsv1.JSONSchemaProps) bool {
	return s != nil && (ptr.Deref(s.XPreserveUnknownFields, false) ||
		s.AdditionalProperties != nil && s.AdditionalProperties.Allows && s.AdditionalProperties.Schema == nil)
}

// child returns the schema of a list's items or of a key, or nil if the API server prunes
// what is there.
func child(s *apiextensionsv1.JSONSchemaProps, key string) *apiextensionsv1.JSONSchemaProps {
	if s == nil {
		return nil
	}
	if s.Items != nil {
		return s.Items.Schema
	}
	if property, found := s.Properties[key]; found {
		return &property
	}
	return ptr.Deref(s.AdditionalProperties, apiextensionsv1.JSONSchemaPropsOrBool{}).Schema
}
