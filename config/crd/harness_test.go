package crd_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/config/crd"
)

const setFile = "leaderworkerset.x-k8s.io_leaderworkersets.yaml"

func readCRD(tb testing.TB) *apiextensionsv1.CustomResourceDefinition {
	tb.Helper()
	raw, err := crd.Files.ReadFile(setFile)
	if err != nil {
		tb.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &definition); err != nil {
		tb.Fatal(err)
	}
	return &definition
}

type object = map[string]any

// gate lets objects through as the API server would with this definition and no
// webhook: defaults, schema, rules, and what an update leaves alone.
type gate struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

func newGate(tb testing.TB) *gate {
	tb.Helper()
	var props apiextensions.JSONSchemaProps
	in := readCRD(tb).Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(in, &props, nil); err != nil {
		tb.Fatal(err)
	}
	structural, err := schema.NewStructural(&props)
	if err != nil {
		tb.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		tb.Fatal(err)
	}
	return &gate{structural: structural, schema: validator, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

// complete fills in the defaults of the schema.
func (g *gate) complete(in object) object {
	defaulting.PruneNonNullableNullsWithoutDefaults(in, g.structural)
	defaulting.Default(in, g.structural)
	return in
}

func (g *gate) create(tb testing.TB, in object) field.ErrorList {
	tb.Helper()
	g.complete(in)
	faults := validation.ValidateCustomResource(nil, in, g.schema)
	more, _ := g.rules.Validate(tb.Context(), nil, g.structural, in, nil, celconfig.RuntimeCELCostBudget)
	return append(faults, more...)
}

func (g *gate) update(tb testing.TB, in, old object) field.ErrorList {
	tb.Helper()
	g.complete(in)
	g.complete(old)
	correlated := func() *common.CorrelatedObject {
		return common.NewCorrelatedObject(in, old, &model.Structural{Structural: g.structural})
	}
	faults := validation.ValidateCustomResourceUpdate(nil, in, old, g.schema, validation.WithRatcheting(correlated()))
	more, _ := g.rules.Validate(tb.Context(), nil, g.structural, in, old, celconfig.RuntimeCELCostBudget, cel.WithRatcheting(correlated()))
	return append(faults, more...)
}

func parse(tb testing.TB, text string) object {
	tb.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return parseJSON(tb, raw)
}

// parseJSON reads whole numbers as the API server does.
func parseJSON(tb rapid.TB, raw []byte) object {
	tb.Helper()
	var tree object
	if err := json.Unmarshal(raw, &tree); err != nil {
		tb.Fatal(err)
	}
	return tree
}

// set is a set with these members of spec.
func set(tb testing.TB, spec string) object {
	tb.Helper()
	return named(tb, "w", spec)
}

func named(tb testing.TB, name, spec string) object {
	tb.Helper()
	in := parse(tb, spec)
	if in == nil {
		in = object{}
	}
	merge(in, parse(tb, `leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c, image: i}]}}}`))
	return object{
		"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
		"metadata": object{"name": name, "namespace": "ns"}, "spec": in,
	}
}

// merge adds to tree what it lacks.
func merge(tree, more object) {
	for key, child := range more {
		sub, isTree := child.(object)
		if mine, present := tree[key].(object); present && isTree {
			merge(mine, sub)
		} else if _, present := tree[key]; !present {
			tree[key] = child
		}
	}
}

func checkFaults(tb testing.TB, faults field.ErrorList, want []string) {
	tb.Helper()
	got := []string{}
	for _, fault := range faults {
		got = append(got, fault.Field+": "+fault.Detail)
	}
	slices.Sort(got)
	want = append([]string{}, want...)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("faults (-want +got):\n%s", diff)
	}
}
