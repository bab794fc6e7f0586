package pvc_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lockstep.dev/lockstep/internal/pvc"
)

// By the name of its kind alone, kubectl would act upon the built-in workload of the same
// kind and name.
func TestCommandsNameTheGroupOfAKindThatIsBuiltInElsewhere(t *testing.T) {
	for _, tt := range []struct {
		apiVersion, kind string
		spec             map[string]any
		want             string
	}{
		{"batch.volcano.sh/v1alpha1", "Job", map[string]any{"minAvailable": int64(1)}, ""},
		{"batch.volcano.sh/v1alpha1", "Job", map[string]any{"suspend": true}, "kubectl delete job.batch.volcano.sh train -n ns"},
		{"apps.kruise.io/v1beta1", "StatefulSet", map[string]any{"suspend": true}, "kubectl delete statefulset.apps.kruise.io train -n ns"},
		{"jobset.x-k8s.io/v1alpha2", "JobSet", map[string]any{}, `kubectl patch jobset train -n ns --type=merge -p '{"spec":{"suspend":true}}'`},
		{"v1", "ReplicationController", map[string]any{"suspend": true}, "kubectl delete replicationcontroller train -n ns"},
	} {
		kind := pvc.Kind{GroupVersionKind: schema.FromAPIVersionAndKind(tt.apiVersion, tt.kind), Templates: []string{"spec.template"}, Suspend: "spec.suspend"}
		tt.spec["template"] = map[string]any{"spec": map[string]any{"volumes": []any{map[string]any{"persistentVolumeClaim": map[string]any{"claimName": "data"}}}}}
		workload := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": tt.apiVersion, "kind": tt.kind, "spec": tt.spec,
			"metadata": map[string]any{"name": "train", "namespace": ns, "uid": "uid-train"},
		}}
		c := caseOf(claim("data", annotated(pvc.HoldersAnnotation, tt.kind+"/train")), pvc.Hold, nil, kind.Of(workload))
		actions := pvc.Why(c).Actions
		if len(actions) != 1 || actions[0].Command != tt.want {
			t.Errorf("%s %s: %+v, want %q", tt.apiVersion, tt.kind, actions, tt.want)
		}
	}
}
