package pvccache

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

func TestADescriptionIsJudgedByTheWorkloadsThatExist(t *testing.T) {
	w := emptyWorkloads(t)
	if got := w.Described(); len(got) != 1 || !got[0].As.Empty() {
		t.Errorf("a kind that is not served: %+v", got)
	}
	served := w.others[0]
	kind := workloads.KindOf(v1alpha1.WorkloadKind{APIVersion: "example.com/v1", Kind: "Shard", PodTemplates: []string{"spec.template"}})
	served.described = &kind
	shard := func(namespace, name, field string) *unstructured.Unstructured {
		workload := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			field: map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c"}}}},
		}}}
		workload.SetNamespace(namespace)
		workload.SetName(name)
		return workload
	}
	for _, step := range []struct {
		name  string
		shard *unstructured.Unstructured
		says  string
	}{
		{"without the path", shard("ns", "a", "other"), "read as "},
		{"with the path", shard("ns", "b", "template"), ""},
		{"cluster-scoped", shard("", "c", "template"), "is cluster-scoped"},
	} {
		reduced, err := described(*served.described)(step.shard)
		do(t, err)
		do(t, served.Watched().GetStore().Add(reduced))
		if says := served.result().Complaint(); (says == "") != (step.says == "") || !strings.Contains(says, step.says) {
			t.Errorf("%s: %q, want %q", step.name, says, step.says)
		}
	}
}
