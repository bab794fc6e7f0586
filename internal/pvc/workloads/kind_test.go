package workloads_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

func object(spec, status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "s", "namespace": "ns", "uid": "uid"}, "spec": spec, "status": status,
	}}
}

func named(name string) any { return map[string]any{"metadata": map[string]any{"name": name}} }

// template is a pod template that names the PVC shared.
func template() any {
	return map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "c"}},
		"volumes":    []any{map[string]any{"persistentVolumeClaim": map[string]any{"claimName": "shared"}}, map[string]any{"name": "tmp"}},
	}}
}

func jobSet(conditions ...any) *unstructured.Unstructured {
	return object(map[string]any{
		"volumeClaimPolicies": []any{map[string]any{"templates": []any{named("ckpt")}}},
		"replicatedJobs":      []any{map[string]any{"template": map[string]any{"spec": map[string]any{"template": template()}}}},
	}, map[string]any{"conditions": conditions})
}

// cluster has one part for each map.
func cluster(parts ...map[string]any) *unstructured.Unstructured {
	var groups []any
	for _, part := range parts {
		part["claims"], part["template"] = []any{named("data")}, template()
		groups = append(groups, part)
	}
	return object(map[string]any{"groups": groups}, nil)
}

type part = map[string]any

// Many parts make one workload: it is idle only if all are, and its size is that of the largest.
func TestDescribedKindsWantPVCs(t *testing.T) {
	clusters := workloads.KindOf(v1alpha1.WorkloadKind{
		APIVersion: "example.com/v1", Kind: "Cluster", PodTemplates: []string{"spec.groups.*.template"}, ClaimTemplates: []string{"spec.groups.*.claims"},
		ClaimName: "{template}-{name}-{ordinal}", Replicas: "spec.groups.*.replicas", Suspend: "spec.groups.*.suspend",
	})
	const numbered = "data-s-2"
	size := func(n int64) part { return part{"replicas": n} }
	for _, tt := range []struct {
		name     string
		kind     workloads.Kind
		workload *unstructured.Unstructured
		pvc      string
		want     string
	}{
		{"jobset, its template", workloads.JobSet, jobSet(), "shared", uses},
		{"jobset, its claims", workloads.JobSet, jobSet(), "ckpt-s", uses},
		{"jobset, completed", workloads.JobSet, jobSet(map[string]any{"type": "Completed", "status": "True"}), "ckpt-s", idle},
		{"jobset, not completed", workloads.JobSet, jobSet(map[string]any{"type": "Completed", "status": "False"}), "ckpt-s", uses},
		{"jobset, a condition of another type", workloads.JobSet, jobSet(7), "ckpt-s", uses},
		{"the first part at zero", clusters, cluster(size(0), size(3)), numbered, uses},
		{"the last part at zero", clusters, cluster(size(3), size(0)), numbered, uses},
		{"one part is smaller", clusters, cluster(size(1), size(3)), numbered, uses},
		{"all are smaller", clusters, cluster(size(1), size(2)), numbered, idle},
		{"all are smaller, the template", clusters, cluster(size(1), size(2)), "shared", uses},
		{"negative", clusters, cluster(size(-1)), "shared", uses},
		{"all at zero", clusters, cluster(size(0), size(0)), "shared", idle},
		{"one without the field", clusters, cluster(size(0), part{}), "shared", uses},
		{"not a number", clusters, cluster(part{"replicas": "two"}), "data-s-77", uses},
		{"no parts", clusters, cluster(), "shared", no},
		{"one is suspended", clusters, cluster(part{"replicas": int64(3), "suspend": true}, size(3)), numbered, uses},
		{"all are suspended", clusters, cluster(part{"replicas": int64(3), "suspend": true}, part{"suspend": true}), numbered, idle},
	} {
		if got := wants(tt.kind.Of(tt.workload), tt.pvc); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(*v1alpha1.WorkloadKind)
		fails bool
	}{
		"jobset":                 {func(*v1alpha1.WorkloadKind) {}, false},
		"no kind":                {func(k *v1alpha1.WorkloadKind) { k.Kind = "" }, true},
		"no paths":               {func(k *v1alpha1.WorkloadKind) { k.PodTemplates, k.ClaimTemplates = nil, nil }, true},
		"no claims, no name":     {func(k *v1alpha1.WorkloadKind) { k.ClaimTemplates, k.ClaimName = nil, "" }, false},
		"no template":            {func(k *v1alpha1.WorkloadKind) { k.ClaimName = "{name}" }, true},
		"an ordinal in between":  {func(k *v1alpha1.WorkloadKind) { k.ClaimName = "{template}-{ordinal}-{name}" }, true},
		"another word":           {func(k *v1alpha1.WorkloadKind) { k.ClaimName = "{template}-{Name}" }, true},
		"no name of a PVC":       {func(k *v1alpha1.WorkloadKind) { k.ClaimName = "{template}_{name}" }, true},
		"ordinals, no replicas":  {func(k *v1alpha1.WorkloadKind) { k.ClaimName = "{template}-{name}-{ordinal}" }, true},
		"ordinals, and replicas": {func(k *v1alpha1.WorkloadKind) { k.ClaimName, k.Replicas = "{template}-{ordinal}", "spec.n" }, false},
	} {
		fields := workloads.JobSet.Fields
		tt.spoil(&fields)
		if err := workloads.KindOf(fields).Check(); (err != nil) != tt.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKindsOfAddsJobSet(t *testing.T) {
	own := workloads.JobSet.Fields
	own.Suspend = "spec.pause"
	for want, described := range map[string][]v1alpha1.WorkloadKind{"spec.suspend": nil, "spec.pause": {own}} {
		if kinds := workloads.KindsOf(described); len(kinds) != 1 || kinds[0].Fields.Suspend != want {
			t.Errorf("got %v, want %s", kinds, want)
		}
	}
}
