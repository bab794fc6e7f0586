package definition

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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
