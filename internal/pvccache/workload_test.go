package pvccache

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// asServed is a set of two groups of three by the definition of another implementation,
// whose schema lets more through than ours.
func asServed(edit func(spec, template map[string]any)) *unstructured.Unstructured {
	volume := func(name, claim string) any {
		return map[string]any{"name": name, "persistentVolumeClaim": map[string]any{"claimName": claim}}
	}
	pod := func(claim string) map[string]any {
		return map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "c", "image": "i"}}, "volumes": []any{volume("v", claim)},
		}}
	}
	template := map[string]any{
		"size": int64(3), "leaderTemplate": pod("weights"), "workerTemplate": pod("cache"),
		"volumeClaimTemplates": []any{map[string]any{"metadata": map[string]any{"name": "data"}, "spec": map[string]any{}}},
	}
	spec := map[string]any{"replicas": int64(2), "leaderWorkerTemplate": template}
	edit(spec, template)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
		"metadata": map[string]any{"namespace": "ns", "name": "llama", "uid": "u", "resourceVersion": "1"},
		"spec":     spec, "status": map[string]any{"replicas": int64(2)},
	}}
}

// container is that of the leader.
func container(template map[string]any) map[string]any {
	return template["leaderTemplate"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
}

// Another implementation may admit sets that our types cannot hold. Such a set is read, and blocks
// no other one.
func TestASetThatCannotBeDecodedDoesNotBlockOthers(t *testing.T) {
	type fields = map[string]any
	plain := wantOfSet(t, asServed(func(_, _ fields) {}))
	if len(plain.Series) != 2 || plain.Named["weights"] == "" || plain.Named["cache"] == "" {
		t.Fatalf("%+v", plain)
	}
	limits := func(amount string) func(_, template fields) {
		return func(_, template fields) { container(template)["resources"] = fields{"limits": fields{"cpu": amount}} }
	}
	in := func(edit func(fields)) func(_, template fields) { return func(_, template fields) { edit(template) } }
	const policy = "persistentVolumeClaimRetentionPolicy"
	claim := func(f fields) fields { return f["volumeClaimTemplates"].([]any)[0].(fields) }
	claimSpec := fields{"resources": fields{"requests": fields{"storage": "1e-2147483647"}}}
	pod := func(f fields) fields { return f["leaderTemplate"].(fields)["spec"].(fields) }
	source := fields{"claimName": int64(7), "readOnly": "yes"}
	volumes := []any{fields{"name": int64(1), "persistentVolumeClaim": source}, "none"}
	ports := []any{fields{"containerPort": int64(1) << 40}}
	amounts := func(n any) func(spec, template fields) {
		return func(spec, template fields) { spec["replicas"], template["size"] = n, n }
	}
	for name, tt := range map[string]struct {
		edit func(spec, template fields)
		same bool // it wants the same PVCs
		any  bool // it wants PVCs of every ordinal
	}{
		"an amount of many digits": {limits("1e-2147483647"), true, false},
		"an amount that is none":   {limits("1e1.5"), true, false},
		"a port that is none":      {in(func(f fields) { container(f)["ports"] = ports }), true, false},
		"a claim's amount":         {in(func(f fields) { claim(f)["spec"] = claimSpec }), true, false},
		"a policy of another type": {in(func(f fields) { f[policy] = "Delete" }), true, false},
		"its parts":                {in(func(f fields) { f[policy] = fields{"whenScaled": true} }), true, false},
		"a claim's name":           {in(func(f fields) { claim(f)["metadata"] = fields{"name": int64(1)} }), false, false},
		"a volume":                 {in(func(f fields) { pod(f)["volumes"] = volumes }), false, false},
		"the spec":                 {func(spec, _ fields) { spec["leaderWorkerTemplate"] = "none" }, false, false},
		"numbers as text":          {amounts("2"), false, true},
		"numbers with fractions":   {amounts(1.5), false, true},
		"too large numbers":        {amounts(int64(1) << 40), false, true},
	} {
		got := wantOfSet(t, asServed(tt.edit))
		if diff := cmp.Diff(plain, got); tt.same && diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if tt.any && (got.Series[0].Spans[0].To < 1<<30 || got.Series[1].Spans[1].To < 1<<30) {
			t.Errorf("%s: %v", name, got.Series)
		}
	}
	odd := asServed(func(_, _ fields) {})
	odd.Object["status"] = fields{"replicas": "2", "started": []any{fields{"pods": int64(5)}, "none"}}
	wantOfSet(t, odd)
}

// wantOfSet reads a set, which must not take seconds.
func wantOfSet(t *testing.T, set *unstructured.Unstructured) (want workloads.Want) {
	t.Helper()
	read := make(chan workloads.Want, 1)
	go func() { read <- workloads.GroupSize(recorded).OfLeaderWorkerSet(set) }()
	select {
	case want = <-read:
	case <-time.After(5 * time.Second):
		t.Fatal("it is being read for seconds")
	}
	return want
}
