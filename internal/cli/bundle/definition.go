package bundle

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// definitionOf reduces a CustomResourceDefinition to what serves its kind.
func definitionOf(found *unstructured.Unstructured) *unstructured.Unstructured {
	at := func(path ...string) any {
		value, _, _ := unstructured.NestedFieldNoCopy(found.Object, path...) // nil where it is missing
		return value
	}
	anything := map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	var versions []any
	all, _ := at("spec", "versions").([]any)
	for i := range all {
		version, _ := all[i].(map[string]any)
		versions = append(versions, map[string]any{
			"name": version["name"], "served": version["served"], "storage": version["storage"], "schema": anything,
			"subresources": map[string]any{"status": map[string]any{}},
		})
	}
	var conditions []any
	for _, name := range []string{"NamesAccepted", "Established"} {
		conditions = append(conditions, map[string]any{
			"type": name, "status": "True", "reason": "Reported", "message": "", "lastTransitionTime": at("metadata", "creationTimestamp"),
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": at("apiVersion"), "kind": at("kind"),
		"metadata": map[string]any{
			"name": at("metadata", "name"), "uid": at("metadata", "uid"), "generation": at("metadata", "generation"),
			"creationTimestamp": at("metadata", "creationTimestamp"),
		},
		"spec": map[string]any{
			"group": at("spec", "group"), "names": at("spec", "names"), "scope": at("spec", "scope"), "versions": versions,
		},
		"status": map[string]any{
			"acceptedNames": at("spec", "names"), "storedVersions": at("status", "storedVersions"), "conditions": conditions,
		},
	}}
}
