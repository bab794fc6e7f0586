package definition

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Union returns a definition with the properties that the live one has besides, in versions of
// the same name. All else is as in the definition.
func Union(definition, live *unstructured.Unstructured) *unstructured.Unstructured {
	union := definition.DeepCopy()
	for name, into := range schemas(union) {
		if from := schemas(live.DeepCopy())[name]; from != nil {
			addProperties(into, from)
		}
	}
	return union
}

// schemas returns the schemas of a definition's versions, no copies.
func schemas(definition *unstructured.Unstructured) map[string]map[string]any {
	all := map[string]map[string]any{}
	versions, _, _ := unstructured.NestedFieldNoCopy(definition.Object, "spec", "versions")
	list, _ := versions.([]any)
	for _, entry := range list {
		version, _ := entry.(map[string]any)
		name, _ := version["name"].(string)
		outer, _ := version["schema"].(map[string]any)
		if schema, ok := outer["openAPIV3Schema"].(map[string]any); ok {
			all[name] = schema
		}
	}
	return all
}

// addProperties adds to a schema, at every depth, the properties that it lacks.
func addProperties(into, from map[string]any) {
	have, _ := into["properties"].(map[string]any)
	more, _ := from["properties"].(map[string]any)
	for name, property := range more {
		switch mine, has := have[name].(map[string]any); {
		case has:
			theirs, _ := property.(map[string]any)
			addProperties(mine, theirs)
		case have != nil:
			have[name] = property
		}
	}
	for _, field := range []string{"items", "additionalProperties"} {
		mine, has := into[field].(map[string]any)
		theirs, _ := from[field].(map[string]any)
		if has {
			addProperties(mine, theirs)
		}
	}
}
