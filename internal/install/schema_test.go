package install

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"
)

func TestLostFields(t *testing.T) {
	const group = "{type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}"
	for name, c := range map[string]struct {
		live, ours string
		want       []string
	}{
		"equal":          {group, group, nil},
		"ours has more":  {"{properties: {spec: {properties: {}}}}", group, nil},
		"a new field":    {"{properties: {spec: {properties: {size: {}, groupIdentity: {type: string}}}}}", group, []string{"spec.groupIdentity"}},
		"a status field": {"{properties: {status: {properties: {x: {}}}}}", "{properties: {status: {}}}", []string{"status.x"}},
		"a new object, with all that is in it": {"{properties: {spec: {properties: {scheduling: {properties: {policy: {}}}}}}}", group,
			[]string{"spec.scheduling", "spec.scheduling.policy"}},
		"in items":        {"{properties: {l: {items: {properties: {a: {}, b: {}}}}}}", "{properties: {l: {items: {properties: {a: {}}}}}}", []string{"l[].b"}},
		"in map values":   {"{properties: {m: {additionalProperties: {properties: {a: {}}}}}}", "{properties: {m: {additionalProperties: {type: object}}}}", []string{"m{}.a"}},
		"named and map":   {"{properties: {m: {properties: {a: {}}}}}", "{properties: {m: {additionalProperties: {type: string}}}}", nil},
		"ours keeps all":  {"{properties: {spec: {properties: {a: {properties: {b: {}}}}}}}", "{properties: {spec: {x-kubernetes-preserve-unknown-fields: true}}}", nil},
		"live keeps all":  {"{properties: {spec: {x-kubernetes-preserve-unknown-fields: true}}}", group, []string{"spec.*"}},
		"both keep all":   {"{x-kubernetes-preserve-unknown-fields: true}", "{x-kubernetes-preserve-unknown-fields: true}", nil},
		"object metadata": {"{properties: {metadata: {properties: {name: {}}}}}", "{properties: {metadata: {type: object}}}", nil},
	} {
		got, err := lostFields(definition(t, "v1", c.live), definition(t, "v1", c.ours))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestLostFieldsOfAVersionWeLack(t *testing.T) {
	got, err := lostFields(definition(t, "v2", "{}"), definition(t, "v1", "{}"))
	if err != nil || !cmp.Equal(got, []string{"version v2"}) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestOurOwnDefinitionLosesNothing(t *testing.T) {
	for _, u := range load(t, Options{}) {
		if u.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if lost, err := lostFields(u, u); err != nil || len(lost) > 0 {
			t.Errorf("%s: %q, %v", title(u), lost, err)
		}
	}
}

// definition returns a CustomResourceDefinition with one version.
func definition(t *testing.T, version, schema string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	text := "spec: {versions: [{name: " + version + ", storage: true, schema: {openAPIV3Schema: " + schema + "}}]}"
	if err := sigsyaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}
