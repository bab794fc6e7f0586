package bundle

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// definitionOf makes the CustomResourceDefinition of a served kind from its names alone: a replay serves the kind, and
// neither validates nor defaults it. The API server tells definitions apart by their UIDs.
func definitionOf(kind *meta.RESTMapping, moment time.Time) *unstructured.Unstructured {
	of, name := kind.GroupVersionKind, kind.Resource.GroupResource().String()
	names := map[string]any{
		"plural": kind.Resource.Resource, "singular": strings.ToLower(of.Kind), "kind": of.Kind, "listKind": of.Kind + "List",
	}
	scope := "Cluster"
	if kind.Scope.Name() == meta.RESTScopeNameNamespace {
		scope = "Namespaced"
	}
	var conditions []any
	for _, condition := range []string{"NamesAccepted", "Established"} {
		conditions = append(conditions, map[string]any{
			"type": condition, "status": "True", "reason": "Reported", "message": "",
			"lastTransitionTime": moment.UTC().Format(time.RFC3339),
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": name, "uid": name, "generation": int64(1)},
		"spec": map[string]any{
			"group": of.Group, "names": names, "scope": scope,
			"versions": []any{map[string]any{
				"name": of.Version, "served": true, "storage": true,
				"schema": map[string]any{
					"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				},
				"subresources": map[string]any{"status": map[string]any{}},
			}},
		},
		"status": map[string]any{"acceptedNames": names, "storedVersions": []any{of.Version}, "conditions": conditions},
	}}
}
