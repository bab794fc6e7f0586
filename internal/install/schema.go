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

// A CustomResourceDefinition that lacks a field makes the API server remove the field
// from each object at its next write. Another implementation, or a newer version of
// this one, may have stored values there. So install compares the definitions before
// it writes anything.

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
func (a applier) refuseLoss(ctx context.Context, objects []*unstructured.Unstructured) error {
	var lost error
	for _, u := range objects {
		if u.GetKind() != "CustomResourceDefinition" {
			continue
		}
		live, err := a.get(ctx, u)
		if err != nil {
			return err
		}
		if live == nil {
			continue
		}
		paths, err := lostFields(live, u)
		if err != nil {
			return fmt.Errorf("compare %s with the live one: %w", title(u), err)
		}
		if len(paths) > 0 {
			lost = errors.Join(lost, &LostFieldsError{Definition: title(u), Paths: paths})
		}
	}
	return lost
}

// lostFields returns the property paths of the live storage version that the candidate
// lacks in the version of the same name.
func lostFields(live, candidate *unstructured.Unstructured) ([]string, error) {
	stored, ours := &apiextensionsv1.CustomResourceDefinition{}, &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, stored); err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(candidate.Object, ours); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(stored.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if i < 0 {
		return nil, nil
	}
	from := stored.Spec.Versions[i]
	var to *apiextensionsv1.JSONSchemaProps
	for _, version := range ours.Spec.Versions {
		if version.Name == from.Name && version.Schema != nil {
			to = version.Schema.OpenAPIV3Schema
		}
	}
	if to == nil {
		return []string{"version " + from.Name}, nil
	}
	if from.Schema == nil {
		return nil, nil
	}
	schema := from.Schema.OpenAPIV3Schema.DeepCopy()
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(schema.Properties, name) // the API server keeps these, whatever a schema says
	}
	lost := missing(schema, to, "")
	slices.Sort(lost)
	return lost, nil
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
		var same *apiextensionsv1.JSONSchemaProps
		if to != nil {
			if p, found := to.Properties[name]; found {
				same = &p
			} else {
				same = valueSchema(to)
			}
		}
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
