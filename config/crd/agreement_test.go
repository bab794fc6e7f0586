package crd_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/config/crd"
	"lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/test/expect"
)

var anyIntOrPercent = rapid.OneOf(
	rapid.Map(rapid.Int32Range(-1, 3), intstr.FromInt32),
	rapid.Map(rapid.SampledFrom([]string{"", "abc", "1", "0%", "000%", "5%", "50%", "100%", "101%", "999999999999999999999%", "-1%", "1.5%"}), intstr.FromString),
)

func optional[T any](value *rapid.Generator[T]) *rapid.Generator[*T] {
	return rapid.Custom(func(t *rapid.T) *T {
		if rapid.IntRange(0, 2).Draw(t, "absent") == 0 {
			return nil
		}
		return ptr.To(value.Draw(t, "value"))
	})
}

// anySet draws from what both the definition and the webhook judge, on both
// sides of every border.
var anySet = rapid.Custom(func(t *rapid.T) *lwsv1.LeaderWorkerSet {
	restart := rapid.SampledFrom([]corev1.RestartPolicy{"", "", "", "Always", "Never"})
	set := &lwsv1.LeaderWorkerSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "leaderworkerset.x-k8s.io/v1", Kind: "LeaderWorkerSet"},
		ObjectMeta: metav1.ObjectMeta{Name: "w", Namespace: "ns"},
	}
	set.Spec.StartupPolicy = lwsv1.LeaderCreatedStartupPolicy
	set.Spec.Replicas = optional(rapid.SampledFrom([]int32{-1, 0, 1, 2, 10, 1000000, 1000001})).Draw(t, "replicas")
	set.Spec.RolloutStrategy.RollingUpdateConfiguration = optional(rapid.Custom(func(t *rapid.T) lwsv1.RollingUpdateConfiguration {
		return lwsv1.RollingUpdateConfiguration{
			Partition:      optional(rapid.Int32Range(-1, 2)).Draw(t, "partition"),
			MaxUnavailable: anyIntOrPercent.Draw(t, "unavailable"),
			MaxSurge:       anyIntOrPercent.Draw(t, "surge"),
		}
	})).Draw(t, "rolling update")
	template := &set.Spec.LeaderWorkerTemplate
	template.Size = optional(rapid.SampledFrom([]int32{-1, 0, 1, 2, 3, 4, 5, 6, 2148, 2147483647})).Draw(t, "size")
	template.SubGroupPolicy = optional(rapid.Custom(func(t *rapid.T) lwsv1.SubGroupPolicy {
		return lwsv1.SubGroupPolicy{
			Type:         optional(rapid.SampledFrom([]lwsv1.SubGroupPolicyType{"LeaderWorker", "LeaderExcluded"})).Draw(t, "type"),
			SubGroupSize: optional(rapid.Int32Range(-1, 5)).Draw(t, "size"),
		}
	})).Draw(t, "subgroups")
	drawIdentity(t, set)
	template.MaxGroupRestarts = optional(rapid.Int32Range(-1, 2)).Draw(t, "group restarts")
	if rapid.IntRange(0, 3).Draw(t, "restart policy given") == 0 {
		template.RestartPolicy = rapid.SampledFrom([]lwsv1.RestartPolicyType{"Default", "None", "RecreateGroupAfterStart"}).Draw(t, "restart policy")
	}
	hostname := template.WorkerTemplate.Spec.Hostname
	deadline := optional(rapid.SampledFrom([]int64{60}))
	template.WorkerTemplate.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}, Hostname: hostname, RestartPolicy: restart.Draw(t, "workers")}
	if rapid.IntRange(0, 3).Draw(t, "deadlines") == 0 {
		template.WorkerTemplate.Spec.ActiveDeadlineSeconds = deadline.Draw(t, "workers' deadline")
	}
	if rapid.Bool().Draw(t, "has leaders") {
		template.LeaderTemplate = template.WorkerTemplate.DeepCopy()
		template.LeaderTemplate.Spec.RestartPolicy = restart.Draw(t, "leaders")
		template.LeaderTemplate.Spec.ActiveDeadlineSeconds = nil
		if rapid.Bool().Draw(t, "leaders without a host name") {
			template.LeaderTemplate.Spec.Hostname = ""
		}
		if rapid.IntRange(0, 3).Draw(t, "deadlines of leaders") == 0 {
			template.LeaderTemplate.Spec.ActiveDeadlineSeconds = deadline.Draw(t, "leaders' deadline")
		}
	}
	return set
})

// drawIdentity draws an identity of groups, and what Hash refuses.
func drawIdentity(t *rapid.T, set *lwsv1.LeaderWorkerSet) {
	set.Spec.GroupIdentity = rapid.SampledFrom([]lwsv1.GroupIdentityType{"", "", "Ordinal", "Hash", "Hash"}).Draw(t, "identity")
	set.Spec.GroupReplacementPolicy = rapid.SampledFrom([]lwsv1.GroupReplacementPolicyType{"", "", "PostTermination", "Immediate"}).Draw(t, "replacement")
	template := &set.Spec.LeaderWorkerTemplate
	switch rapid.IntRange(0, 5).Draw(t, "what Hash refuses") {
	case 0:
		set.Name = strings.Repeat("w", rapid.SampledFrom([]int{43, 44, 54, 55}).Draw(t, "length of the name"))
	case 1:
		template.WorkerTemplate.Spec.Hostname = "host"
	case 2:
		template.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	}
}

// goodSet has nothing wrong with it.
var goodSet = rapid.Custom(func(t *rapid.T) *lwsv1.LeaderWorkerSet {
	for {
		set := anySet.Draw(t, "set")
		admission.Default(set)
		if len((admission.Scheduling{}).ValidateCreate(set)) == 0 {
			return set
		}
	}
})

func treeOf(t *rapid.T, set *lwsv1.LeaderWorkerSet) object {
	return parseJSON(t, expect.Value(json.Marshal(set))(t))
}

// inBoth leaves out the length of a name, and nothing else: the scale subresource must pass the definition with
// any number of groups, so only the webhook judges it.
func inBoth(faults field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(faults, func(f *field.Error) bool { return f.Field == "metadata.name" && f.Origin == "name-length" })
}

// With the webhook or without: the same sets get in. It runs first and may
// repair; what it lets through the definition must not refuse, and what it
// refuses the definition must not let through.
func TestDefinitionAndWebhookAgreeOnNewSets(t *testing.T) {
	g := newGate(t)
	rapid.Check(t, func(rt *rapid.T) {
		set := anySet.Draw(rt, "set")
		admission.Default(set)
		byWebhook := inBoth(admission.Scheduling{}.ValidateCreate(set))
		byDefinition := g.create(t, treeOf(rt, set))
		expect.Must(rt, (len(byWebhook) == 0) == (len(byDefinition) == 0),
			"the webhook says %v, the definition %v", byWebhook, byDefinition)
	})
}

// The one door that stays open is a change of replicas under a budget that it
// rounds to nothing: the scale subresource, which no webhook sees, needs it.
func TestDefinitionAndWebhookAgreeOnUpdates(t *testing.T) {
	g := newGate(t)
	rapid.Check(t, func(rt *rapid.T) {
		old := goodSet.Draw(rt, "old")
		set := anySet.Draw(rt, "set")
		set.Name = old.Name
		if rapid.Bool().Draw(rt, "same identity") {
			set.Spec.GroupIdentity = old.Spec.GroupIdentity
		}
		if rapid.Bool().Draw(rt, "same budget") {
			set.Spec.RolloutStrategy = *old.Spec.RolloutStrategy.DeepCopy()
		}
		if rapid.Bool().Draw(rt, "same template") {
			set.Spec.LeaderWorkerTemplate = *old.Spec.LeaderWorkerTemplate.DeepCopy()
		}
		admission.Default(set)
		byWebhook := inBoth(admission.Scheduling{}.ValidateUpdate(set, old))
		byDefinition := g.update(t, treeOf(rt, set), treeOf(rt, old))
		if len(byDefinition) == 0 && len(byWebhook) == 1 && byWebhook[0].Detail == "must not be 0 when `maxSurge` is 0" &&
			cmp.Equal(set.Spec.RolloutStrategy, old.Spec.RolloutStrategy) {
			return
		}
		expect.Must(rt, (len(byWebhook) == 0) == (len(byDefinition) == 0),
			"the webhook says %v, the definition %v", byWebhook, byDefinition)
	})
}

// A set may have been stored before a rule existed. Neither refuses a change of something else.
func TestOldFaultsStopNoOtherChange(t *testing.T) {
	g := newGate(t)
	rapid.Check(t, func(rt *rapid.T) {
		old := anySet.Draw(rt, "old")
		admission.Default(old)
		set := old.DeepCopy()
		set.Labels = map[string]string{"a": "b"}
		if rapid.Bool().Draw(rt, "image") {
			set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image = "new"
		}
		faults := append(inBoth(admission.Scheduling{}.ValidateUpdate(set, old)), g.update(t, treeOf(rt, set), treeOf(rt, old))...)
		expect.Must(rt, len(faults) == 0, "refused: %v", faults)
	})
}

const setFile = "leaderworkerset.x-k8s.io_leaderworkersets.yaml"

func readCRD(tb testing.TB) *apiextensionsv1.CustomResourceDefinition {
	tb.Helper()
	return readFile(tb, setFile)
}

func readFile(tb testing.TB, name string) *apiextensionsv1.CustomResourceDefinition {
	tb.Helper()
	raw := expect.Value(crd.Files.ReadFile(name))(tb)
	var definition apiextensionsv1.CustomResourceDefinition
	expect.OK(tb, yaml.UnmarshalStrict(raw, &definition))
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
	return gateOf(tb, setFile)
}

func gateOf(tb testing.TB, name string) *gate {
	tb.Helper()
	var props apiextensions.JSONSchemaProps
	in := readFile(tb, name).Spec.Versions[0].Schema.OpenAPIV3Schema
	expect.OK(tb, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(in, &props, nil))
	structural := expect.Value(schema.NewStructural(&props))(tb)
	validator, _, err := validation.NewSchemaValidator(&props)
	expect.OK(tb, err)
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
	return parseJSON(tb, expect.Value(yaml.YAMLToJSON([]byte(text)))(tb))
}

// parseJSON reads whole numbers as the API server does.
func parseJSON(tb rapid.TB, raw []byte) object {
	tb.Helper()
	var tree object
	expect.OK(tb, utiljson.Unmarshal(raw, &tree))
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
	expect.Equalf(tb, want, got, "faults")
}
