package pvccache

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// A path that exists in one version of a kind may not exist in another.
func TestADescriptionIsJudgedByTheVersionThatIsRead(t *testing.T) {
	v1, v2 := schema.GroupVersion{Group: "example.com", Version: "v1"}, schema.GroupVersion{Group: "example.com", Version: "v2"}
	d := &described{kind: workloads.KindOf(v1alpha1.WorkloadKind{APIVersion: "example.com/v1", Kind: "Shard", PodTemplates: []string{"spec.template"}})}
	seeIn := func(namespace, field string) {
		t.Helper()
		workload := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			field: map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c"}}}},
		}}}
		workload.SetNamespace(namespace)
		if _, err := d.of(workload); err != nil {
			t.Fatal(err)
		}
	}
	see := func(field string) { t.Helper(); seeIn("ns", field) }
	var as schema.GroupVersionResource
	readAs := func(resource schema.GroupVersionResource) { as = resource; d.reset() }
	for _, step := range []struct {
		name string
		do   func()
		says string
	}{
		{"not served", func() {}, "is not served"},
		{"a workload without the path", func() { readAs(v1.WithResource("shards")); see("other") }, "read as example.com/v1"},
		{"one with the path", func() { see("template") }, ""},
		{"another version", func() { readAs(v2.WithResource("shards")); see("other") }, "read as example.com/v2"},
		{"cluster-scoped", func() { seeIn("", "template") }, "is cluster-scoped"},
		{"namespaced again", func() { readAs(v1.WithResource("shards")); see("template") }, ""},
		{"not served any more", func() { as = schema.GroupVersionResource{} }, "is not served"},
	} {
		step.do()
		if says := d.result(as, 1).Complaint(); (says == "") != (step.says == "") || !strings.Contains(says, step.says) {
			t.Errorf("%s: %q, want %q", step.name, says, step.says)
		}
	}
	(*described)(nil).reset() // a built-in kind has none
}

func TestConfiguredKindsThatAreReadAreDescribed(t *testing.T) {
	if got := emptyWorkloads(t).Described(); len(got) != 1 || got[0].GroupVersionKind != workloads.JobSet.GroupVersionKind {
		t.Errorf("got %v", got)
	}
}
