package pvc_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lockstep.dev/lockstep/internal/pvc"
)

var exampleV1 = schema.GroupVersion{Group: "example.com", Version: "v1"}

func shard(template, claims, size any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Shard", "metadata": map[string]any{"name": "s"},
		"spec": map[string]any{"template": template, "claims": claims, "size": size},
	}}
}

// A path that leads nowhere names nothing, and so holds nothing: it must not go
// without a word.
func TestADescriptionThatLeadsNowhereIsComplainedOf(t *testing.T) {
	template := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c"}}}}
	claims := []any{map[string]any{"metadata": map[string]any{"name": "data"}}}
	jobSet := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicatedJobs": []any{
		map[string]any{"template": map[string]any{"spec": map[string]any{"template": template}}},
	}}}}
	whole := shard(template, claims, int64(2))
	kind := pvc.Kind{GroupVersionKind: exampleV1.WithKind("Shard"), Templates: []string{"spec.template"}, ClaimTemplates: []string{"spec.claims"}, ClaimName: "{template}-{name}-{ordinal}", Replicas: "spec.size", Suspend: "spec.pause"}
	with := func(edit func(*pvc.Kind)) pvc.Kind {
		k := kind
		edit(&k)
		return k
	}
	const nowhere = "on no Shard there is (read as example.com/v1) leads "
	for _, tt := range []struct {
		name      string
		kind      pvc.Kind
		as        schema.GroupVersion
		workloads []*unstructured.Unstructured
		says      string
	}{
		{"as described", kind, exampleV1, []*unstructured.Unstructured{whole}, ""},
		{"no workloads", kind, exampleV1, nil, ""},
		{"one of several leaves a field out", kind, exampleV1, []*unstructured.Unstructured{shard(template, nil, nil), whole}, ""},
		{"no such field", with(func(k *pvc.Kind) { k.Templates = []string{"spec.tmpl"} }), exampleV1, []*unstructured.Unstructured{whole}, nowhere + `"spec.tmpl" to a pod template: `},
		{"too deep", with(func(k *pvc.Kind) { k.Templates = []string{"spec.template.spec"} }), exampleV1, []*unstructured.Unstructured{whole}, nowhere + `"spec.template.spec" to a pod template: `},
		{"not a list", with(func(k *pvc.Kind) { k.ClaimTemplates = []string{"spec.template"} }), exampleV1, []*unstructured.Unstructured{whole}, nowhere + `"spec.template" to a list of claims: `},
		{"not a number", kind, exampleV1, []*unstructured.Unstructured{shard(template, claims, "two")}, nowhere + `"spec.size" to a number: `},
		{"two at once", kind, exampleV1, []*unstructured.Unstructured{shard(template, []any{}, nil)}, `"spec.claims" to a list of claims, or "spec.size" to a number: `},
		{"in another version", kind, schema.GroupVersion{Group: "example.com", Version: "v2"}, []*unstructured.Unstructured{shard(nil, claims, int64(1))}, `(read as example.com/v2) leads "spec.template" to a pod template`},
		{"not served", kind, schema.GroupVersion{}, nil, "kind Shard of example.com/v1 is not served: nothing is held for it until it is"},
		{"not served, and nobody asked for it", pvc.JobSet, schema.GroupVersion{}, nil, ""},
		{"one that is known, without claims", pvc.JobSet, pvc.JobSet.GroupVersion(), []*unstructured.Unstructured{jobSet}, ""},
	} {
		d := pvc.Described{Kind: tt.kind, As: tt.as, Workloads: len(tt.workloads), Found: map[string]bool{}}
		for _, w := range tt.workloads {
			tt.kind.Found(w, func(lead string) { d.Found[lead] = true })
		}
		if says := d.Complaint(); (says == "") != (tt.says == "") || !strings.Contains(says, tt.says) {
			t.Errorf("%s: %q, want %q", tt.name, says, tt.says)
		}
	}
}
