package definition

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/test/expect"
)

func parsed(t expect.T, text string) *Schema {
	s := &Schema{}
	expect.OK(t, yaml.Unmarshal([]byte(text), s))
	return s
}

func value(t expect.T, text string) (v any) {
	document, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(document, &v)
	}
	expect.OK(t, err)
	return v
}

const (
	ours   = `properties: {a: {type: integer}, m: {additionalProperties: {type: string}}, l: {items: {properties: {x: {}}}}, k: {x-kubernetes-preserve-unknown-fields: true}}`
	stored = `properties: {a: {type: integer}, m: {additionalProperties: {type: string}}, l: {items: {properties: {x: {}, "y": {default: 3}}}},
  k: {x-kubernetes-preserve-unknown-fields: true}, identity: {default: Ordinal}, count: {type: integer}, policy: {properties: {kind: {default: A}}}}`
)

func TestBeyond(t *testing.T) {
	for name, tt := range map[string]struct {
		object string
		want   []Field
	}{
		"nothing":                        {`{a: 1, m: {any: thing}, l: [{x: 1}]}`, nil},
		"a default":                      {`{identity: Ordinal}`, nil},
		"another value than the default": {`{identity: Hash}`, []Field{{"identity", "Hash"}}},
		"a value without a default":      {`{count: 0}`, []Field{{"count", int64(0)}}},
		"a default in a list":            {`{l: [{x: 1, "y": 3}]}`, nil},
		"a value in a list":              {`{l: [{x: 1, "y": 4}]}`, []Field{{"l[].y", int64(4)}}},
		"an object, whatever is in it":   {`{policy: {kind: A}}`, []Field{{"policy", map[string]any{"kind": "A"}}}},
		"what is kept unread":            {`{k: {deep: {er: 1}}}`, nil},
		"several, by path":               {`{count: 2, identity: Hash}`, []Field{{"count", int64(2)}, {"identity", "Hash"}}},
	} {
		expect.Equalf(t, tt.want, Beyond(value(t, tt.object), parsed(t, stored), parsed(t, ours)), "%s", name)
	}
}

func TestUnionHasThePropertiesOfBoth(t *testing.T) {
	crd := func(version, schema string) *unstructured.Unstructured {
		text := "spec: {versions: [{name: " + version + ", schema: {openAPIV3Schema: " + schema + "}}]}"
		return &unstructured.Unstructured{Object: value(t, text).(map[string]any)}
	}
	const ours = "{properties: {a: {type: integer}, l: {items: {properties: {x: {}}}}, m: {additionalProperties: {properties: {properties: {properties: {b: {}}}}}}, k: {}}}"
	const theirs = "{maxProperties: 3, properties: {a: {type: string, default: z}, n: {properties: {o: {}}}, l: {items: {properties: {\"y\": {}}}}, " +
		"m: {additionalProperties: {properties: {properties: {properties: {c: {}}}}}}, k: {properties: {p: {}}}}}"
	const both = "{properties: {a: {type: integer}, n: {properties: {o: {}}}, l: {items: {properties: {x: {}, \"y\": {}}}}, " +
		"m: {additionalProperties: {properties: {properties: {properties: {b: {}, c: {}}}}}}, k: {}}}"
	for version, want := range map[string]string{"v1": both, "v2": ours} {
		expect.Equalf(t, crd(version, want), Union(crd(version, ours), crd("v1", theirs)), "%s", version)
	}
}

// A schema lacks nothing of what it describes itself. Of a schema with one field more, it lacks
// that field alone.
func TestWhatASchemaDescribesIsKept(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "c"})
	var draw func(*rapid.T, int) *Schema
	draw = func(t *rapid.T, depth int) *Schema {
		s := &Schema{Properties: map[string]Schema{}}
		for range rapid.IntRange(0, 3).Draw(t, "fields") {
			if depth > 0 {
				s.Properties[names.Draw(t, "name")] = *draw(t, depth-1)
			}
		}
		return s
	}
	rapid.Check(t, func(t *rapid.T) {
		s := draw(t, 3)
		expect.Emptyf(t, Pruned(Fullest(s), s), "what is lost")
		more := s.DeepCopy()
		more.Properties["new"] = Schema{}
		expect.Equal(t, []string{"new"}, Pruned(Fullest(more), s))
	})
}

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
		got := expect.Value(Lost(crdOf(t, "v1", c.live), crdOf(t, "v1", c.ours), nil))(t)
		expect.Equalf(t, c.want, got, "%s", name)
	}
	got := expect.Value(Lost(crdOf(t, "v2", "{}"), crdOf(t, "v1", "{}"), nil))(t)
	expect.Equalf(t, []string{"version v2"}, got, "of a version that ours lacks")
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
		"no sets":            {nil, []string{}},
		"without":            {[]string{"{nodeName: n, nodeSelector: {a: b}, containers: [{name: c}]}"}, []string{}},
		"in a container":     {[]string{"{containers: [{name: c}, {gone: 1}]}"}, []string{at + "containers[].gone"}},
		"in the second of 2": {[]string{"{}", "{workloadRef: {name: w}}"}, []string{at + "workloadRef"}},
		"in both":            {[]string{"{workloadRef: {}}", "{workloadRef: {name: w}}"}, []string{at + "workloadRef"}},
	} {
		var sets []unstructured.Unstructured
		for _, pod := range c.pods {
			var set unstructured.Unstructured
			text := "{metadata: {name: s}, spec: {leaderWorkerTemplate: {workerTemplate: {spec: " + pod + "}}}, status: {more: 1}}"
			expect.OK(t, yaml.Unmarshal([]byte(text), &set.Object))
			sets = append(sets, set)
		}
		got := expect.Value(Lost(crdOf(t, "v1", theirs), crdOf(t, "v1", ours), sets))(t)
		expect.Equalf(t, c.want, got, "%s", name)
	}
}

// A role has the templates of a set.
func TestFieldsOfTemplatesOfRolesCountWhereSetsHaveThem(t *testing.T) {
	schemaOf := func(pod string) string {
		template := "{properties: {leaderWorkerTemplate: {properties: {workerTemplate: {properties: {spec: {properties: " + pod + "}}}}}}}"
		return "{properties: {spec: {properties: {roles: {items: {properties: {spec: " + template + "}}}}}}}"
	}
	const at = "spec.roles[].spec.leaderWorkerTemplate.workerTemplate.spec."
	for pod, want := range map[string][]string{"{nodeName: n}": {}, "{novelty: x}": {at + "novelty"}} {
		var set unstructured.Unstructured
		text := "{spec: {roles: [{spec: {leaderWorkerTemplate: {workerTemplate: {spec: " + pod + "}}}}]}}"
		expect.OK(t, yaml.Unmarshal([]byte(text), &set.Object))
		theirs, ours := crdOf(t, "v1", schemaOf("{nodeName: {}, novelty: {}}")), crdOf(t, "v1", schemaOf("{nodeName: {}}"))
		got := expect.Value(Lost(theirs, ours, []unstructured.Unstructured{set}))(t)
		expect.Equalf(t, want, got, "%s", pod)
	}
}

func TestStoredKind(t *testing.T) {
	u := &unstructured.Unstructured{}
	expect.OK(t, yaml.Unmarshal([]byte("spec: {group: g.io, names: {kind: K}, versions: [{name: v1}, {name: v2, storage: true}]}"), &u.Object))
	expect.Equal(t, "g.io/v2, Kind=K", StoredKind(u).String())
}

// definition returns a CustomResourceDefinition with one version.
func crdOf(t *testing.T, version, schema string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	text := "spec: {versions: [{name: " + version + ", storage: true, schema: {openAPIV3Schema: " + schema + "}}]}"
	expect.OK(t, yaml.Unmarshal([]byte(text), &u.Object))
	return u
}
