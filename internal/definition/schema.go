// Package definition compares the schemas of CustomResourceDefinitions, and what is stored
// under one with another.
//
// It knows which fields the API server prunes, and which it sets by default. It refuses to
// know what a field means.
package definition

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
)

// Schema is the structural schema of one version of a definition, or of a part of it.
type Schema = apiextensionsv1.JSONSchemaProps

// Version is one version of a definition.
type Version = apiextensionsv1.CustomResourceDefinitionVersion

// IsStored reports whether objects are stored in a version.
func IsStored(v Version) bool { return v.Storage }

// SchemaOf returns the schema and the name of one version, without what the API server
// keeps whatever a schema says. Without such a version it returns nothing.
func SchemaOf(definition *unstructured.Unstructured, is func(Version) bool) (*Schema, string, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(definition.Object, crd); err != nil {
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

// Fullest returns a value that has everything a schema describes.
func Fullest(s *Schema) any {
	switch {
	case s == nil:
		return nil
	case s.Items != nil:
		return []any{Fullest(s.Items.Schema)}
	}
	all := map[string]any{}
	if s.AdditionalProperties != nil || keepsAnything(s) {
		all[anything] = Fullest(child(s, anything))
	}
	for name, property := range s.Properties {
		all[name] = Fullest(&property)
	}
	return all
}

// Pruned returns the paths of a value that the API server removes under a schema: of all
// fields of what is removed as well.
func Pruned(value any, s *Schema) []string { return pruned(value, s, "") }

func pruned(value any, s *Schema, at string) (lost []string) {
	if keepsAnything(s) {
		return nil
	}
	if s == nil {
		lost = []string{strings.TrimPrefix(at, ".")}
	}
	for _, p := range parts(value) {
		lost = append(lost, pruned(p.value, child(s, p.key), at+p.step)...)
	}
	return lost
}

// Field is a path in an object, and what is there.
type Field struct {
	Path  string
	Value any
}

// Beyond returns the fields of a stored object that one schema lacks, by rising path. A
// field that the stored schema sets by default counts only if it has another value.
func Beyond(object any, stored, s *Schema) []Field {
	found := beyond(object, stored, s, "")
	slices.SortFunc(found, func(a, b Field) int { return cmp.Compare(a.Path, b.Path) })
	return found
}

func beyond(value any, stored, s *Schema, at string) (found []Field) {
	switch {
	case keepsAnything(s), s == nil && isDefault(value, stored):
		return nil
	case s == nil:
		return []Field{{strings.TrimPrefix(at, "."), value}}
	}
	for _, p := range parts(value) {
		found = append(found, beyond(p.value, child(stored, p.key), child(s, p.key), at+p.step)...)
	}
	return found
}

func isDefault(value any, s *Schema) bool {
	var byDefault any
	return s != nil && s.Default != nil && json.Unmarshal(s.Default.Raw, &byDefault) == nil && reflect.DeepEqual(value, byDefault)
}

// part is an item of a list, or a field of an object.
type part struct {
	key, step string
	value     any
}

func parts(value any) (all []part) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			all = append(all, part{"[]", "[]", item})
		}
	case map[string]any:
		for name, inner := range value {
			all = append(all, part{name, "." + name, inner})
		}
	}
	return all
}

// keepsAnything reports whether the API server prunes nothing below a schema.
func keepsAnything(s *Schema) bool {
	return s != nil && (ptr.Deref(s.XPreserveUnknownFields, false) ||
		s.AdditionalProperties != nil && s.AdditionalProperties.Allows && s.AdditionalProperties.Schema == nil)
}

// child returns the schema of a list's items or of a key, or nil if the API server prunes
// what is there.
func child(s *Schema, key string) *Schema {
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
