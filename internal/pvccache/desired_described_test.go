package pvccache

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lockstep.dev/lockstep/internal/pvc"
)

// What led somewhere in one version of a kind need not do so in another.
func TestADescriptionIsJudgedByTheVersionThatIsRead(t *testing.T) {
	v1, v2 := schema.GroupVersion{Group: "example.com", Version: "v1"}, schema.GroupVersion{Group: "example.com", Version: "v2"}
	d := describe(pvc.Kind{GroupVersionKind: v1.WithKind("Shard"), Templates: []string{"spec.template"}})
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
	for _, step := range []struct {
		name string
		do   func()
		says string
	}{
		{"nothing is served", func() {}, "is not served"},
		{"a workload of another make", func() { d.readAs(v1.WithResource("shards")); see("other") }, "read as example.com/v1"},
		{"one as described", func() { see("template") }, ""},
		{"another version", func() { d.readAs(v2.WithResource("shards")); see("other") }, "read as example.com/v2"},
		{"one of the whole cluster", func() { seeIn("", "template") }, "is of the whole cluster: nothing is held for it"},
		{"of namespaces again", func() { d.readAs(v1.WithResource("shards")); see("template") }, ""},
		{"not served any more", func() { d.readAs(schema.GroupVersionResource{}) }, "is not served"},
	} {
		step.do()
		if says := d.came(1).Complaint(); (says == "") != (step.says == "") || !strings.Contains(says, step.says) {
			t.Errorf("%s: %q, want %q", step.name, says, step.says)
		}
	}
	var none *description
	none.readAs(v1.WithResource("sets")) // a kind that is built in has none
}

func TestOnlyDescribedKindsThatAreKnownAreJudged(t *testing.T) {
	d := emptyDesired(t)
	if got := d.Described(); len(got) > 0 {
		t.Errorf("nobody asked whether it is served: %v", got)
	}
	d.foreign[1].now.Store(&serving{})
	if got := d.Described(); len(got) != 1 || got[0].GroupVersionKind != pvc.JobSet.GroupVersionKind {
		t.Errorf("got %v", got)
	}
}
