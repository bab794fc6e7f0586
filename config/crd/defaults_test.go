package crd_test

import (
	"encoding/json"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"lockstep.dev/lockstep/internal/lws"
)

// What the schema fills into a set that was stored before is no new template:
// every default within what a revision holds must be known to be one.
func TestADefaultOfTheSchemaMakesNoRevision(t *testing.T) {
	spec := readCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	found := 0
	for _, part := range []string{"leaderWorkerTemplate", "networkConfig"} {
		defaults(spec.Properties[part], []string{part}, func(path []string, value json.RawMessage) {
			found++
			if !lws.SameMeaning(document(path, value), document(path, nil)) {
				t.Errorf("%s: a set gets %s there when it is read, and a revision of its own by that", strings.Join(path, "."), value)
			}
		})
	}
	if found < 50 {
		t.Fatalf("found %d defaults: the schema is not what this test thinks", found)
	}
}

func defaults(schema apiextensionsv1.JSONSchemaProps, path []string, found func([]string, json.RawMessage)) {
	if schema.Default != nil {
		found(path, schema.Default.Raw)
	}
	for name, field := range schema.Properties {
		defaults(field, append(path[:len(path):len(path)], name), found)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		defaults(*schema.Items.Schema, append(path[:len(path):len(path)], "[]"), found)
	}
}

// document is what has a value at a path, or all of the path but its end.
func document(path []string, value json.RawMessage) []byte {
	head, rest := path[0], path[1:]
	var inner string
	switch {
	case len(rest) > 0:
		inner = string(document(rest, value))
	case value == nil:
		return []byte(`{}`)
	default:
		inner = string(value)
	}
	if head == "[]" {
		return []byte("[" + inner + "]")
	}
	name, _ := json.Marshal(head)
	return []byte("{" + string(name) + ":" + inner + "}")
}
