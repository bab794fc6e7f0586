package definition

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

func schema(t interface{ Fatal(...any) }, text string) *Schema {
	s := &Schema{}
	if err := yaml.Unmarshal([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func value(t interface{ Fatal(...any) }, text string) (v any) {
	document, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(document, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
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
		t.Run(name, func(t *testing.T) {
			got := Beyond(value(t, tt.object), schema(t, stored), schema(t, ours))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
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
		if diff := cmp.Diff(crd(version, want), Union(crd(version, ours), crd("v1", theirs))); diff != "" {
			t.Errorf("%s (-want +got)\n%s", version, diff)
		}
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
		if lost := Pruned(Fullest(s), s); len(lost) > 0 {
			t.Fatalf("lost %v", lost)
		}
		more := s.DeepCopy()
		more.Properties["new"] = Schema{}
		if diff := cmp.Diff([]string{"new"}, Pruned(Fullest(more), s)); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	})
}
