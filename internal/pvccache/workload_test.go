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
var ofSet = OfLeaderWorkerSet(recorded)

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

// Where protection stands beside another implementation, nobody has judged what a set says
// of anything but claims: one set must neither stop the reading of all, nor go unread.
func TestASetThatCannotBeDecodedDoesNotBlockOthers(t *testing.T) {
	plain, err := ofSet(asServed(func(_, _ map[string]any) {}))
	if err != nil || len(plain.Series) != 2 || plain.Named["weights"] == "" || plain.Named["cache"] == "" {
		t.Fatalf("%+v, %v", plain, err)
	}
	limits := func(amount string) func(_, template map[string]any) {
		return func(_, template map[string]any) {
			container(template)["resources"] = map[string]any{"limits": map[string]any{"cpu": amount}}
		}
	}
	for name, edit := range map[string]func(spec, template map[string]any){
		"an amount of many digits": limits("1e-2147483647"),
		"an amount that is none":   limits("1e1.5"),
		"a port that is none": func(_, template map[string]any) {
			container(template)["ports"] = []any{map[string]any{"containerPort": int64(1) << 40}}
		},
		"a claim's amount": func(_, template map[string]any) {
			template["volumeClaimTemplates"].([]any)[0].(map[string]any)["spec"] = map[string]any{
				"resources": map[string]any{"requests": map[string]any{"storage": "1e-2147483647"}},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			type answer struct {
				want workloads.Want
				err  error
			}
			answered := make(chan answer, 1)
			go func() {
				want, err := ofSet(asServed(edit))
				answered <- answer{want, err}
			}()
			select {
			case got := <-answered:
				if diff := cmp.Diff(plain, got.want); diff != "" || got.err != nil {
					t.Errorf("%v (-want +got):\n%s", got.err, diff)
				}
			case <-time.After(5 * time.Second):
				t.Error("it is being read for seconds")
			}
		})
	}
	for name, edit := range map[string]func(spec, template map[string]any){
		"a claim's name": func(_, template map[string]any) {
			template["volumeClaimTemplates"].([]any)[0].(map[string]any)["metadata"] = map[string]any{"name": int64(1)}
		},
		"a volume": func(_, template map[string]any) {
			template["leaderTemplate"].(map[string]any)["spec"].(map[string]any)["volumes"] = []any{
				map[string]any{"name": int64(1), "persistentVolumeClaim": map[string]any{"claimName": int64(7), "readOnly": "yes"}}, "none",
			}
		},
		"a policy": func(_, template map[string]any) { template["persistentVolumeClaimRetentionPolicy"] = "Delete" },
		"its parts": func(_, template map[string]any) {
			template["persistentVolumeClaimRetentionPolicy"] = map[string]any{"whenScaled": true}
		},
		"amounts":  func(spec, template map[string]any) { spec["replicas"], template["size"] = "2", 1.5 },
		"the spec": func(spec, _ map[string]any) { spec["leaderWorkerTemplate"] = "none" },
	} {
		if _, err := ofSet(asServed(edit)); err != nil {
			t.Errorf("%s of another type: %v", name, err)
		}
	}
	odd := asServed(func(_, _ map[string]any) {})
	odd.Object["status"] = map[string]any{"replicas": "2", "started": []any{map[string]any{"pods": int64(5)}, "none"}}
	if _, err := ofSet(odd); err != nil {
		t.Errorf("a status of another type: %v", err)
	}
	for _, amount := range []any{"2", 1.5} {
		found, err := ofSet(asServed(func(spec, template map[string]any) { spec["replicas"], template["size"] = amount, amount }))
		if err != nil || found.Series[0].Spans[0].To < 1<<30 || found.Series[1].Spans[1].To < 1<<30 {
			t.Errorf("%v groups of %[1]v, which may be any number: %v, %v", amount, found.Series, err)
		}
	}
	more, err := ofSet(asServed(func(spec, _ map[string]any) { spec["replicas"] = int64(1) << 40 }))
	if err != nil || more.Series[0].Spans[0].To < 1<<30 {
		t.Errorf("more groups than there can be: %v, %v", more.Series, err)
	}
}
