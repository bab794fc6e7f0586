package chart

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lockstep.dev/lockstep/api/config/v1alpha1"
)

type object = map[string]any

// types are those of the Kubernetes API and of the Configuration that a value may have.
var types = map[string]reflect.Type{
	"core/v1.Affinity":                 reflect.TypeFor[corev1.Affinity](),
	"core/v1.LocalObjectReference":     reflect.TypeFor[corev1.LocalObjectReference](),
	"core/v1.ResourceRequirements":     reflect.TypeFor[corev1.ResourceRequirements](),
	"core/v1.Toleration":               reflect.TypeFor[corev1.Toleration](),
	"core/v1.TopologySpreadConstraint": reflect.TypeFor[corev1.TopologySpreadConstraint](),
	"networking/v1.NetworkPolicyPeer":  reflect.TypeFor[networkingv1.NetworkPolicyPeer](),
	"config/v1alpha1.WorkloadKind":     reflect.TypeFor[v1alpha1.WorkloadKind](),
}

// Schema returns values.schema.json: every object in it is closed, so a value that the chart does
// not know is an error.
func Schema(all []Value) ([]byte, error) {
	root, err := closed(all)
	if err != nil {
		return nil, err
	}
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	// Helm adds it where the chart is a part of another chart.
	root["properties"].(object)["global"] = object{"type": "object"}
	text, err := json.MarshalIndent(root, "", "  ")
	return append(text, '\n'), err
}

func closed(all []Value) (object, error) {
	properties := object{}
	for _, v := range all {
		schema, err := v.schema()
		if err != nil {
			return nil, fmt.Errorf("values.yaml: %s: %w", v.Path, err)
		}
		properties[v.Name] = schema
	}
	return object{"type": "object", "additionalProperties": false, "properties": properties}, nil
}

func (v Value) schema() (schema object, err error) {
	switch {
	case len(v.Fields) > 0:
		schema, err = closed(v.Fields)
	case v.Marks["type"] != "":
		schema, err = named(v.Marks["type"])
	default:
		schema, err = scalar(v.Default.Tag)
	}
	if err != nil {
		return nil, err
	}
	schema["description"] = v.Text
	if list, found := v.Marks["enum"]; found {
		schema["enum"] = strings.Split(list, ",")
	}
	if pattern, found := v.Marks["pattern"]; found {
		schema["pattern"] = pattern
	}
	for _, bound := range []string{"minimum", "maximum"} {
		if text, found := v.Marks[bound]; found && err == nil {
			schema[bound], err = strconv.Atoi(text)
		}
	}
	return schema, err
}

// scalar returns the schema of a tag of YAML.
func scalar(tag string) (object, error) {
	name, found := map[string]string{"!!str": "string", "!!int": "integer", "!!bool": "boolean"}[tag]
	if !found {
		return nil, fmt.Errorf("a value of %s needs a line +type=…", tag)
	}
	return object{"type": name}, nil
}

// named returns the schema of a line "+type=".
func named(name string) (object, error) {
	if item, isList := strings.CutPrefix(name, "[]"); isList {
		items, err := named(item)
		return object{"type": "array", "items": items}, err
	}
	switch name {
	case "string":
		return object{"type": "string"}, nil
	case "intstr":
		return schemaOf(reflect.TypeFor[intstr.IntOrString]()), nil
	case "map":
		return schemaOf(reflect.TypeFor[map[string]string]()), nil
	case "map[bool]":
		return schemaOf(reflect.TypeFor[map[string]bool]()), nil
	}
	t, found := types[name]
	if !found {
		return nil, fmt.Errorf("unknown type %q", name)
	}
	return schemaOf(t), nil
}

// schemaOf returns the schema of a Go type, as encoding/json reads it.
func schemaOf(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[intstr.IntOrString]():
		return object{"type": []string{"integer", "string"}}
	case reflect.TypeFor[resource.Quantity]():
		return object{"type": []string{"number", "string"}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		properties := object{}
		addFields(properties, t)
		return object{"type": "object", "additionalProperties": false, "properties": properties}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	}
	panic("no schema for " + t.String())
}

func addFields(properties object, t reflect.Type) {
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && strings.Contains(options, "inline") {
			addFields(properties, field.Type)
			continue
		}
		properties[name] = schemaOf(field.Type)
	}
}
