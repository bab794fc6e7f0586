package lws

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	"lockstep.dev/lockstep/test/expect"
)

// A plan of a file does not hide that it leaves out fields of a newer definition.
func TestFieldsThatThisVersionLacksAreNamed(t *testing.T) {
	stored := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"roles": []any{map[string]any{"name": "prefill", "subRoles": []any{}}}}}}
	set, warnings, err := decoded[dsv1.DisaggregatedSet](stored)
	expect.That(t, err == nil && set.Spec.Roles[0].Name == "prefill" && len(warnings) == 1, "got %+v, %q, %v", set, warnings, err)
	expect.Says(t, warnings[0], `"spec.roles[0].subRoles"`)
	stored.Object["spec"] = "none"
	_, _, err = decoded[dsv1.DisaggregatedSet](stored)
	expect.That(t, err != nil, "what is no set was decoded")
}
