package chart

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

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

// Schema returns values.schema.json: every object in it is closed, so a value that the chart does
// not know is an error.
func Schema(all []Value) ([]byte, error) {
	root, err := closed(all)
	if err != nil {
		return nil, err
	}
	root.Version = "http://json-schema.org/draft-07/schema#"
	// Helm adds it where the chart is a part of another chart.
	root.Properties.Set("global", &jsonschema.Schema{Type: "object"})
	text, err := json.MarshalIndent(root, "", "  ")
	return append(text, '\n'), err
}

func closed(all []Value) (*jsonschema.Schema, error) {
	object := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema}
	for _, v := range all {
		schema, err := v.schema()
		if err != nil {
			return nil, err
		}
		object.Properties.Set(v.Name, schema)
	}
	return object, nil
}

func (v Value) schema() (schema *jsonschema.Schema, err error) {
	if len(v.Fields) > 0 {
		schema, err = closed(v.Fields)
	} else {
		schema, err = v.typed()
	}
	if err != nil {
		return nil, err
	}
	schema.Version, schema.Description, schema.Pattern = "", v.Text, v.Marks["pattern"]
	schema.Minimum, schema.Maximum = json.Number(v.Marks["minimum"]), json.Number(v.Marks["maximum"])
	if choices, found := v.Marks["enum"]; found {
		for choice := range strings.SplitSeq(choices, ",") {
			schema.Enum = append(schema.Enum, choice)
		}
	}
	return schema, nil
}

// typed returns the schema of the type of a value without fields.
func (v Value) typed() (*jsonschema.Schema, error) {
	item, isList := strings.CutPrefix(cmp.Or(v.Marks["type"], v.Default.Tag), "[]")
	t, found := types[item]
	if !found {
		return nil, fmt.Errorf("values.yaml: %s: no type %q: write a line +type=…", v.Path, item)
	}
	if isList {
		t = reflect.SliceOf(t)
	}
	return reflector.ReflectFromType(t), nil
}
