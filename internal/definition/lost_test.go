package definition

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"
)

func TestLost(t *testing.T) {
	const group = "{type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}"
	for name, c := range map[string]struct {
		live, ours string
		want       []string
	}{
		"equal":          {group, group, nil},
		"ours has more":  {"{properties: {spec: {properties: {}}}}", group, nil},
		"a new field":    {"{properties: {spec: {properties: {size: {}, placement: {type: string}}}}}", group, []string{"spec.placement"}},
		"a status field": {"{properties: {status: {properties: {x: {}}}}}", "{properties: {status: {}}}", []string{"status.x"}},
		"a new object": {"{properties: {spec: {properties: {scheduling: {properties: {policy: {}}}}}}}", group,
			[]string{"spec.scheduling"}},
		"in items":        {"{properties: {l: {items: {properties: {a: {}, b: {}}}}}}", "{properties: {l: {items: {properties: {a: {}}}}}}", []string{"l[].b"}},
		"in map values":   {"{properties: {m: {additionalProperties: {properties: {a: {}}}}}}", "{properties: {m: {additionalProperties: {type: object}}}}", []string{"m.*.a"}},
		"named and map":   {"{properties: {m: {properties: {a: {}}}}}", "{properties: {m: {additionalProperties: {type: string}}}}", nil},
		"ours keeps all":  {"{properties: {spec: {properties: {a: {properties: {b: {}}}}}}}", "{properties: {spec: {x-kubernetes-preserve-unknown-fields: true}}}", nil},
		"live keeps all":  {"{properties: {spec: {x-kubernetes-preserve-unknown-fields: true}}}", group, []string{"spec.*"}},
		"both keep all":   {"{x-kubernetes-preserve-unknown-fields: true}", "{x-kubernetes-preserve-unknown-fields: true}", nil},
		"object metadata": {"{properties: {metadata: {properties: {name: {}}}}}", "{properties: {metadata: {type: object}}}", nil},
	} {
		got, err := Lost(crdOf(t, "v1", c.live), crdOf(t, "v1", c.ours), nil)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, c.want)
		}
	}
	got, err := Lost(crdOf(t, "v2", "{}"), crdOf(t, "v1", "{}"), nil)
	if err != nil || !slices.Equal(got, []string{"version v2"}) {
		t.Errorf("of a version that ours lacks: got %q, %v", got, err)
	}
}

// A definition that was generated from another version of Kubernetes has other fields in
// its templates. They count where a stored set has them.
func TestFieldsOfTemplatesCountWhereSetsHaveThem(t *testing.T) {
	const theirs = "{properties: {spec: {properties: {leaderWorkerTemplate: {properties: {workerTemplate: {properties: {spec: {properties: " +
		"{nodeName: {}, containers: {items: {properties: {name: {}, gone: {}}}}, workloadRef: {properties: {name: {}}}}}}}}}}}}}"
	const ours = "{properties: {spec: {properties: {leaderWorkerTemplate: {properties: {workerTemplate: {properties: {spec: {properties: " +
		"{nodeName: {}, containers: {items: {properties: {name: {}}}}, nodeSelector: {additionalProperties: {type: string}}}}}}}}}}}}"
	const at = "spec.leaderWorkerTemplate.workerTemplate.spec."
	for name, c := range map[string]struct {
		pods []string
		want []string
	}{
		"no sets":            {nil, nil},
		"without":            {[]string{"{nodeName: n, nodeSelector: {a: b}, containers: [{name: c}]}"}, nil},
		"in a container":     {[]string{"{containers: [{name: c}, {gone: 1}]}"}, []string{at + "containers[].gone"}},
		"in the second of 2": {[]string{"{}", "{workloadRef: {name: w}}"}, []string{at + "workloadRef"}},
		"in both":            {[]string{"{workloadRef: {}}", "{workloadRef: {name: w}}"}, []string{at + "workloadRef"}},
	} {
		var sets []unstructured.Unstructured
		for _, pod := range c.pods {
			var set unstructured.Unstructured
			text := "{metadata: {name: s}, spec: {leaderWorkerTemplate: {workerTemplate: {spec: " + pod + "}}}, status: {more: 1}}"
			if err := sigsyaml.Unmarshal([]byte(text), &set.Object); err != nil {
				t.Fatal(err)
			}
			sets = append(sets, set)
		}
		got, err := Lost(crdOf(t, "v1", theirs), crdOf(t, "v1", ours), sets)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, c.want)
		}
	}
}

// definition returns a CustomResourceDefinition with one version.
func crdOf(t *testing.T, version, schema string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	text := "spec: {versions: [{name: " + version + ", storage: true, schema: {openAPIV3Schema: " + schema + "}}]}"
	if err := sigsyaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}
