package chart

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lockstep.dev/lockstep/api/config/v1alpha1"
)

// types are those that a value may have: by its tag in YAML, or by the line "+type=", which may put "[]" before them.
var types = map[string]reflect.Type{
	"!!str":                            reflect.TypeFor[string](),
	"!!int":                            reflect.TypeFor[int](),
	"!!bool":                           reflect.TypeFor[bool](),
	"string":                           reflect.TypeFor[string](),
	"intstr":                           reflect.TypeFor[intstr.IntOrString](),
	"map":                              reflect.TypeFor[map[string]string](),
	"map[bool]":                        reflect.TypeFor[map[string]bool](),
	"core/v1.Affinity":                 reflect.TypeFor[corev1.Affinity](),
	"core/v1.LocalObjectReference":     reflect.TypeFor[corev1.LocalObjectReference](),
	"core/v1.ResourceRequirements":     reflect.TypeFor[corev1.ResourceRequirements](),
	"core/v1.Toleration":               reflect.TypeFor[corev1.Toleration](),
	"core/v1.TopologySpreadConstraint": reflect.TypeFor[corev1.TopologySpreadConstraint](),
	"networking/v1.NetworkPolicyPeer":  reflect.TypeFor[networkingv1.NetworkPolicyPeer](),
	"config/v1alpha1.WorkloadKind":     reflect.TypeFor[v1alpha1.WorkloadKind](),
}

// reflector makes schemas of Go types as encoding/json reads them. Templates and the API server know what is required.
var reflector = jsonschema.Reflector{Anonymous: true, DoNotReference: true, RequiredFromJSONSchemaTags: true, Mapper: ofJSON}

// ofJSON returns the schema of types that encoding/json reads in a way of their own.
func ofJSON(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[intstr.IntOrString]():
		return &jsonschema.Schema{Extras: map[string]any{"type": []string{"integer", "string"}}}
	case reflect.TypeFor[resource.Quantity]():
		return &jsonschema.Schema{Extras: map[string]any{"type": []string{"number", "string"}}}
	}
	return nil
}

// schemaOf returns values.schema.json: every object in it is closed, so a value that the chart does
// not know is an error.
func schemaOf(t *testing.T, all []value) []byte {
	t.Helper()
	root := closed(t, all)
	root.Version = "http://json-schema.org/draft-07/schema#"
	// Helm adds it where the chart is a part of another chart.
	root.Properties.Set("global", &jsonschema.Schema{Type: "object"})
	text, err := json.MarshalIndent(root, "", "  ")
	must(t, err)
	return append(text, '\n')
}

func closed(t *testing.T, all []value) *jsonschema.Schema {
	t.Helper()
	object := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema}
	for _, v := range all {
		object.Properties.Set(v.name, v.schema(t))
	}
	return object
}

func (v value) schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	if len(v.fields) > 0 {
		object := closed(t, v.fields)
		object.Description = v.text
		return object
	}
	item, isList := strings.CutPrefix(cmp.Or(v.marks["type"], v.node.Tag), "[]")
	of, found := types[item]
	if !found {
		t.Fatalf("values.yaml: %s: no type %q: write a line +type=…", v.path, item)
	}
	if isList {
		of = reflect.SliceOf(of)
	}
	schema := reflector.ReflectFromType(of)
	schema.Version, schema.Description, schema.Pattern = "", v.text, v.marks["pattern"]
	schema.Minimum, schema.Maximum = json.Number(v.marks["minimum"]), json.Number(v.marks["maximum"])
	if choices, found := v.marks["enum"]; found {
		for choice := range strings.SplitSeq(choices, ",") {
			schema.Enum = append(schema.Enum, choice)
		}
	}
	return schema
}
