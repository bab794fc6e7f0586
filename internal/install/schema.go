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
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A CustomResourceDefinition that lacks a field makes the API server remove the field from
// each object at its next write. Another implementation, or a newer version of this one,
// may have stored values there. So install compares the definitions before it writes
// anything.

// LostFieldsError reports the fields that a live CustomResourceDefinition has and ours
// lacks.
type LostFieldsError struct {
	// Definition is the CustomResourceDefinition, as kubectl names it.
	Definition string
	// Paths are all property paths that would be lost, sorted.
	Paths []string
}

// Error implements error.
func (e *LostFieldsError) Error() string {
	return fmt.Sprintf("%s in the cluster has %d fields that this version of Lockstep lacks, and replacing it would remove them from every object:\n  %s\n"+
		"nothing was installed; keep the implementation that wrote this definition, or install a version of Lockstep that has these fields; "+
		"to protect PVCs without replacing it: lockstep install --protect-only", e.Definition, len(e.Paths), strings.Join(e.Paths, "\n  "))
}

// refuseLoss returns an error for each CustomResourceDefinition to install that lacks
// fields of the live one.
func (c *cluster) refuseLoss(ctx context.Context, objects []*unstructured.Unstructured) error {
	var lost error
	for _, u := range objects {
		if u.GetKind() != "CustomResourceDefinition" {
			continue
		}
		live, err := c.get(ctx, u)
		if err != nil {
			return err
		}
		if live == nil {
			continue
		}
		paths, err := lostFields(live, u, func(see func(*unstructured.Unstructured)) error { return c.eachSet(ctx, see) })
		if err != nil {
			return fmt.Errorf("compare %s with the live one: %w", title(u), err)
		}
		if len(paths) > 0 {
			lost = errors.Join(lost, &LostFieldsError{Definition: title(u), Paths: paths})
		}
	}
	return lost
}

func (c *cluster) eachSet(ctx context.Context, see func(*unstructured.Unstructured)) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(setList)
	return c.each(ctx, list, func(o client.Object) error {
		see(o.(*unstructured.Unstructured))
		return nil
	})
}

// templates are the schemas of Kubernetes itself within ours. Which fields these have
// depends on the version of Kubernetes that a definition was generated from.
var templates = []string{
	"spec.leaderWorkerTemplate.leaderTemplate.", "spec.leaderWorkerTemplate.workerTemplate.", "spec.leaderWorkerTemplate.volumeClaimTemplates[].",
}

func inTemplate(path string) bool {
	return slices.ContainsFunc(templates, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

// lostFields returns the property paths of the live storage version that the candidate
// lacks in the version of the same name. In templates only those count that a stored set
// has: another Kubernetes version has other fields, which most sets do not use.
func lostFields(live, candidate *unstructured.Unstructured, stored func(see func(*unstructured.Unstructured)) error) ([]string, error) {
	from, name, err := schemaOf(live, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if err != nil || name == "" {
		return nil, err
	}
	to, found, err := schemaOf(candidate, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name })
	if err != nil {
		return nil, err
	}
	if found == "" || to == nil {
		return []string{"version " + name}, nil
	}
	lost := missing(from, to, "")
	if slices.ContainsFunc(lost, inTemplate) {
		lost = slices.DeleteFunc(lost, inTemplate)
		err = stored(func(set *unstructured.Unstructured) {
			lost = append(lost, pruned(map[string]any{"spec": set.Object["spec"]}, to, "")...)
		})
	}
	slices.Sort(lost)
	return slices.Compact(lost), err
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

// pruned returns the property paths of a value that a schema would prune.
func pruned(value any, to *apiextensionsv1.JSONSchemaProps, path string) (lost []string) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			lost = append(lost, pruned(item, itemSchema(to), path+"[]")...)
		}
	case map[string]any:
		if keepsAnything(to) {
			return nil
		}
		for name, v := range value {
			at := strings.TrimPrefix(path+"."+name, ".")
			if same := propertySchema(to, name); same != nil {
				lost = append(lost, pruned(v, same, at)...)
			} else {
				lost = append(lost, at)
			}
		}
	}
	return lost
}

// missing returns the property paths of a schema that another schema would prune. A nil
// schema prunes everything.
func missing(from, to *apiextensionsv1.JSONSchemaProps, path string) (lost []string) {
	if from == nil || keepsAnything(to) {
		return nil
	}
	if keepsAnything(from) {
		return []string{path + ".*"}
	}
	for name, property := range from.Properties {
		at := strings.TrimPrefix(path+"."+name, ".")
		same := propertySchema(to, name)
		if same == nil {
			lost = append(lost, at)
		}
		lost = append(lost, missing(&property, same, at)...)
	}
	lost = append(lost, missing(itemSchema(from), itemSchema(to), path+"[]")...)
	return append(lost, missing(valueSchema(from), valueSchema(to), path+"{}")...)
}

// keepsAnything reports whether the API server prunes nothing below a schema.
func keepsAnything(s *apiextensionsv1.JSONSchemaProps) bool {
	if s == nil {
		return false
	}
	return ptr.Deref(s.XPreserveUnknownFields, false) ||
		s.AdditionalProperties != nil && s.AdditionalProperties.Allows && s.AdditionalProperties.Schema == nil
}

// propertySchema returns nil for a property that a schema prunes.
func propertySchema(s *apiextensionsv1.JSONSchemaProps, name string) *apiextensionsv1.JSONSchemaProps {
	if s == nil {
		return nil
	}
	if property, found := s.Properties[name]; found {
		return &property
	}
	return valueSchema(s)
}

func itemSchema(s *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if s == nil || s.Items == nil {
		return nil
	}
	return s.Items.Schema
}

func valueSchema(s *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if s == nil || s.AdditionalProperties == nil {
		return nil
	}
	return s.AdditionalProperties.Schema
}
