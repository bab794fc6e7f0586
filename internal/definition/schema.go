// Package definition compares the schemas of CustomResourceDefinitions, and what is stored
// under one with another.
//
// It knows which fields the API server prunes, and which it sets by default. It refuses to
// know what a field means.
package definition

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// Schema is the structural schema of one version of a definition, or of a part of it.
type Schema = apiextensionsv1.JSONSchemaProps

// SchemaOf returns the schema and the name of a version, or of the stored version if the name is empty, without what the
// API server keeps whatever a schema says. Without such a version it returns nothing.
func SchemaOf(definition *unstructured.Unstructured, version string) (*Schema, string, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(definition.Object, crd); err != nil {
		return nil, "", err
	}
	for _, v := range crd.Spec.Versions {
		switch {
		case v.Name != version && (version != "" || !v.Storage):
			continue
		case v.Schema == nil || v.Schema.OpenAPIV3Schema == nil:
			return nil, v.Name, nil
		}
		for _, name := range []string{"apiVersion", "kind", "metadata"} {
			delete(v.Schema.OpenAPIV3Schema.Properties, name)
		}
		return v.Schema.OpenAPIV3Schema, v.Name, nil
	}
	return nil, "", nil
}

// StoredKind returns the kind of a definition's objects, as they are stored.
func StoredKind(definition *unstructured.Unstructured) schema.GroupVersionKind {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	_, version, _ := SchemaOf(definition, "")
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

// anything stands for each key of a map, and for what a schema keeps unread.
const anything = "*"

// Compare returns the schemas of a definition and of our manifest, or nothing if ours has all fields of spec: what others
// report in the status changes no decision.
func Compare(inCluster *unstructured.Unstructured, manifest []byte) (theirs, ours *Schema, err error) {
	embedded := &unstructured.Unstructured{}
	if err = yaml.Unmarshal(manifest, embedded); err == nil {
		theirs, _, err = SchemaOf(inCluster, "")
	}
	if err == nil {
		ours, _, err = SchemaOf(embedded, "")
	}
	isOfSpec := func(path string) bool { return strings.HasPrefix(path, "spec.") }
	if err != nil || !slices.ContainsFunc(Pruned(Fullest(theirs), ours), isOfSpec) {
		return nil, nil, err
	}
	return theirs, ours, nil
}

// templates matches paths into the schemas of Kubernetes itself within ours. Which fields these have
// depends on the version of Kubernetes that a definition was generated from.
var templates = regexp.MustCompile(`^spec\.(roles\[\]\.spec\.)?leaderWorkerTemplate\.((leader|worker)Template|volumeClaimTemplates\[\])\.`)

// Lost returns the property paths of the live storage version that the candidate lacks in the version of the same name.
// In templates only those count that a stored object has: another Kubernetes version has other fields, which most objects
// do not use.
func Lost(live, candidate *unstructured.Unstructured, stored []unstructured.Unstructured) ([]string, error) {
	from, name, err := SchemaOf(live, "")
	if err != nil || name == "" {
		return nil, err
	}
	to, _, err := SchemaOf(candidate, name)
	if err != nil {
		return nil, err
	}
	if to == nil {
		return []string{"version " + name}, nil
	}
	lost := slices.DeleteFunc(Pruned(Fullest(from), to), templates.MatchString)
	for _, object := range stored {
		lost = append(lost, Pruned(map[string]any{"spec": object.Object["spec"]}, to)...)
	}
	slices.Sort(lost)
	return slices.Compact(lost), nil
}

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

// Field is a path in an object, and what is there.
type Field struct {
	Path  string
	Value any
}

// Beyond returns the fields of a value that a schema lacks, so that the API server removes them, by rising path. A
// field with the value that theirs sets by default does not count.
func Beyond(value any, theirs, s *Schema) []Field {
	found := beyond(value, theirs, s, "")
	slices.SortFunc(found, func(a, b Field) int { return cmp.Compare(a.Path, b.Path) })
	return found
}

func beyond(value any, theirs, s *Schema, at string) (found []Field) {
	switch {
	case keepsAnything(s), s == nil && isDefault(value, theirs):
		return nil
	case s == nil:
		return []Field{{strings.TrimPrefix(at, "."), value}}
	}
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			found = append(found, beyond(item, child(theirs, ""), child(s, ""), at+"[]")...)
		}
	case map[string]any:
		for key, inner := range value {
			found = append(found, beyond(inner, child(theirs, key), child(s, key), at+"."+key)...)
		}
	}
	return found
}

func isDefault(value any, s *Schema) bool {
	var byDefault any
	return s != nil && s.Default != nil && json.Unmarshal(s.Default.Raw, &byDefault) == nil && reflect.DeepEqual(value, byDefault)
}

// Pruned returns the paths of what the API server removes from a value under a schema.
func Pruned(value any, s *Schema) (paths []string) {
	for _, field := range Beyond(value, nil, s) {
		paths = append(paths, field.Path)
	}
	return paths
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

// Union returns a definition with the properties that the live one has besides, in versions of
// the same name. All else is as in the definition.
func Union(definition, live *unstructured.Unstructured) *unstructured.Unstructured {
	union := definition.DeepCopy()
	theirs := versions(live.DeepCopy())
	for name, version := range versions(union) {
		addProperties(version, theirs[name], false)
	}
	return union
}

// versions returns the versions of a definition by their names, no copies.
func versions(definition *unstructured.Unstructured) map[string]any {
	all := map[string]any{}
	found, _, _ := unstructured.NestedFieldNoCopy(definition.Object, "spec", "versions")
	list, _ := found.([]any)
	for _, entry := range list {
		version, _ := entry.(map[string]any)
		all[fmt.Sprint(version["name"])] = entry
	}
	return all
}

// addProperties adds, at every depth, the properties that a schema lacks. areProperties says that keys are names of them.
func addProperties(into, from any, areProperties bool) {
	mine, _ := into.(map[string]any)
	theirs, _ := from.(map[string]any)
	for key, value := range theirs {
		switch have, has := mine[key]; {
		case has:
			addProperties(have, value, key == "properties" && !areProperties)
		case areProperties && mine != nil:
			mine[key] = value
		}
	}
}
