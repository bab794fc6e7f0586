package pvc_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/internal/pvc"
)

// A workload of several parts is idle only if all of them are, and no part's claims are
// free because another one is smaller.
func TestAWorkloadOfSeveralPartsHoldsForEachOfThem(t *testing.T) {
	kind := pvc.Kind{
		GroupVersionKind: exampleV1.WithKind("Cluster"), Templates: []string{"spec.groups.*.template"}, ClaimTemplates: []string{"spec.groups.*.claims"},
		ClaimName: "{template}-{name}-{ordinal}", Replicas: "spec.groups.*.replicas", Suspend: "spec.groups.*.suspend",
	}
	part := func(fields map[string]any) any {
		fields["claims"] = []any{map[string]any{"metadata": map[string]any{"name": "data"}}}
		fields["template"] = map[string]any{"spec": map[string]any{"volumes": []any{map[string]any{"persistentVolumeClaim": map[string]any{"claimName": "models"}}}}}
		return fields
	}
	size := func(n int64) any { return part(map[string]any{"replicas": n}) }
	const holds, idle = "Cluster/ray", ""
	for _, tt := range []struct {
		name   string
		groups []any
		// who holds data-ray-2, and the claim that all pods name
		numbered, named string
	}{
		{"the first is scaled to zero", []any{size(0), size(3)}, holds, holds},
		{"the last is", []any{size(3), size(0)}, holds, holds},
		{"the first is smaller", []any{size(1), size(3)}, holds, holds},
		{"none is as large", []any{size(1), size(2)}, idle, holds},
		{"less than none, which is whatever its kind means by it", []any{size(-1)}, idle, holds},
		{"all are scaled to zero", []any{size(0), size(0)}, idle, idle},
		{"one does not say", []any{size(0), part(map[string]any{})}, idle, holds},
		{"there is none", nil, idle, idle},
		{"one is suspended", []any{part(map[string]any{"replicas": int64(3), "suspend": true}), size(3)}, holds, holds},
		{"all are", []any{part(map[string]any{"replicas": int64(3), "suspend": true}), part(map[string]any{"suspend": true})}, idle, idle},
	} {
		want := kind.Of(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "ray", "namespace": "ns", "uid": "uid-ray"}, "spec": map[string]any{"groups": tt.groups},
		}})
		for claimed, by := range map[string]string{"data-ray-2": tt.numbered, "models": tt.named} {
			held, _ := world(index(), want).Holders(claim(claimed))
			if got := theNames(held); got != by {
				t.Errorf("%s: %s is held by %q, want %q", tt.name, claimed, got, by)
			}
		}
	}
}
