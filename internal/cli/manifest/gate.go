package manifest

import (
	"context"
	"errors"
	"fmt"
	"sync"

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
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/config/crd"
)

const definition = "leaderworkerset.x-k8s.io_leaderworkersets.yaml"

// gate lets objects through as the API server does by the definition of the
// kind: defaults, schema and rules.
type gate struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

var openGate = sync.OnceValues(newGate)

func newGate() (*gate, error) {
	raw, err := crd.Files.ReadFile(definition)
	if err != nil {
		return nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		return nil, err
	}
	var props apiextensions.JSONSchemaProps
	in := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(in, &props, nil); err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(&props)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(&props)
	return &gate{structural: structural, schema: validator, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}, err
}

// complete fills in the defaults of the schema.
func (g *gate) complete(tree map[string]any) {
	defaulting.PruneNonNullableNullsWithoutDefaults(tree, g.structural)
	defaulting.Default(tree, g.structural)
}

// judge says what is wrong with an object, as the successor of old if that is
// not nil.
func (g *gate) judge(ctx context.Context, tree, old map[string]any) field.ErrorList {
	if old == nil {
		faults := validation.ValidateCustomResource(nil, tree, g.schema)
		more, _ := g.rules.Validate(ctx, nil, g.structural, tree, nil, celconfig.RuntimeCELCostBudget)
		return append(faults, more...)
	}
	// Either use takes the correlation apart in its own way: one for each.
	correlated := func() *common.CorrelatedObject {
		return common.NewCorrelatedObject(tree, old, &model.Structural{Structural: g.structural})
	}
	faults := validation.ValidateCustomResourceUpdate(nil, tree, old, g.schema, validation.WithRatcheting(correlated()))
	more, _ := g.rules.Validate(ctx, nil, g.structural, tree, old, celconfig.RuntimeCELCostBudget, cel.WithRatcheting(correlated()))
	return append(faults, more...)
}

// object decodes JSON as the API server does: whole numbers are int64.
func object(raw []byte) (map[string]any, error) {
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return nil, err
	}
	if fields, ok := tree.(map[string]any); ok {
		return fields, nil
	}
	return nil, errors.New(`not an object: it should begin with "apiVersion:" and "kind:"`)
}

// treeOf is the object as the API server would receive it.
func treeOf(typed any) (map[string]any, error) {
	raw, err := json.Marshal(typed)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return object(raw)
}
