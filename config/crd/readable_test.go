package crd_test

import (
	"encoding/json"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	strictjson "sigs.k8s.io/json"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// unreadable are values that some Go type behind a leaf of the schema cannot hold.
var unreadable = map[string][]string{
	"number": {`99999999999`, `-99999999999`, `2147483648`},
	"time": {
		`"2026-01-01t00:00:00z"`, `"2026-01-01T00:00:00"`, `"2026-01-01T00:00:00x5Z"`, `"2026-02-31T00:00:00Z"`,
		`"2026-01-01T24:00:00Z"`, `"2026-01-01T00:00:00+99:99"`, `[]`, `["2026-01-01T00:00:00Z"]`,
	},
	"other": {`[]`},
}

// The webhook may be missing, and the status has none. One object that a Go client
// cannot read keeps it from listing all others.
func TestWhatTheDefinitionTakesCanBeRead(t *testing.T) {
	g := newGate(t)
	asked := map[string]int{}
	schema := *readCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, part := range []string{"spec", "status"} {
		leaves(schema.Properties[part], []string{part}, func(path []string, leaf apiextensionsv1.JSONSchemaProps) {
			kind := kindOf(leaf)
			for _, value := range unreadable[kind] {
				asked[kind]++
				raw := document(path, json.RawMessage(value))
				if g.takes(t, raw, strings.Join(path, ".")) && strictjson.UnmarshalCaseSensitivePreserveInts(raw, &lwsv1.LeaderWorkerSet{}) != nil {
					t.Errorf("%s: %s is taken, and no client can read it", strings.Join(path, "."), value)
				}
			}
		})
	}
	if asked["number"] < 600 || asked["time"] < 60 || asked["other"] < 500 {
		t.Fatalf("asked %v times: the schema is not what this test thinks", asked)
	}
}

func TestTimesThatClientsWriteAreTaken(t *testing.T) {
	g := newGate(t)
	for _, text := range []string{"2026-11-22T18:34:47Z", "2024-02-29T00:00:00Z", "2026-11-22T18:34:47.123456Z", "2026-11-22T18:34:47+05:30"} {
		if !g.takes(t, []byte(`{"status":{"restartsSince":"`+text+`"}}`), "status.restartsSince") {
			t.Errorf("%s is refused", text)
		}
	}
}

func kindOf(leaf apiextensionsv1.JSONSchemaProps) string {
	switch {
	case leaf.Format == "date-time":
		return "time"
	case leaf.Type == "integer", leaf.XIntOrString:
		return "number"
	}
	return "other"
}

// takes tells whether the definition finds nothing wrong at the path of a document:
// what else a set must have is not in it.
func (g *gate) takes(t *testing.T, raw []byte, path string) bool {
	t.Helper()
	listed := strings.NewReplacer("[0]", ".[]", ".0", ".[]", "[key]", ".key")
	for _, fault := range g.create(t, parseJSON(t, raw)) {
		if strings.Contains(listed.Replace(fault.Field+" "+fault.Detail), path) {
			return false
		}
	}
	return true
}

func leaves(schema apiextensionsv1.JSONSchemaProps, path []string, found func([]string, apiextensionsv1.JSONSchemaProps)) {
	below := func(name string, child apiextensionsv1.JSONSchemaProps) {
		leaves(child, append(path[:len(path):len(path)], name), found)
	}
	for name, child := range schema.Properties {
		below(name, child)
	}
	switch {
	case schema.Items != nil && schema.Items.Schema != nil:
		below("[]", *schema.Items.Schema)
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		below("key", *schema.AdditionalProperties.Schema)
	case len(schema.Properties) == 0:
		found(path, schema)
	}
}
