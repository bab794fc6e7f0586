package crd_test

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"lockstep.dev/lockstep/test/expect"
)

const (
	disaggregatedFile = "disaggregatedset.x-k8s.io_disaggregatedsets.yaml"
	scalerFile        = "disaggregatedset.x-k8s.io_disaggregatedsetrolescalers.yaml"
)

func TestNamesAndSubresources(t *testing.T) {
	for file, want := range map[string]string{
		setFile:           "lws, /scale of .spec.replicas .status.replicas .status.hpaPodSelector",
		disaggregatedFile: "dset",
		scalerFile:        "dsrs, /scale of .spec.replicas .status.replicas .status.selector",
	} {
		d := readFile(t, file)
		got, sub := strings.Join(d.Spec.Names.ShortNames, " "), d.Spec.Versions[0].Subresources
		if s := sub.Scale; s != nil {
			got += fmt.Sprintf(", /scale of %s %s %s", s.SpecReplicasPath, s.StatusReplicasPath, *s.LabelSelectorPath)
		}
		expect.Equalf(t, want, got, "%s", file)
		expect.That(t, sub.Status != nil && d.Spec.Scope == apiextensionsv1.NamespaceScoped && len(d.Spec.Names.Categories) == 0, "%s: %+v", file, d.Spec)
	}
}

func TestColumnsOfDisaggregatedSets(t *testing.T) {
	const age = "Age: date .metadata.creationTimestamp, priority 0"
	expect.Equal(t, []string{
		"Roles: integer .status.roles, priority 0", "Ready: integer .status.readyRoles, priority 0",
		"Updated: integer .status.updatedRoles, priority 0", age,
	}, columns(t, disaggregatedFile))
	expect.Equal(t, []string{
		"Desired: integer .spec.replicas, priority 0", "Current: integer .status.replicas, priority 0", age,
	}, columns(t, scalerFile))
}

func TestDefaultsAndEnumsOfDisaggregatedSets(t *testing.T) {
	const role = "spec.roles[].spec."
	checkPresets(t, disaggregatedFile, []preset{
		{"spec.slices", `1`, `null`},
		{"spec.placementPolicy", ``, `null`},
		{"spec.placementPolicy.type", `"None"`, `["None","ExclusiveSlice","ExclusiveTopology"]`},
		{"spec.placementPolicy.topology", ``, `null`},
		{"spec.roles[].scaling", ``, `null`},
		{"spec.roles[].scaling.mode", `"Static"`, `["Static","External"]`},
		{"status", `{"observedGeneration":-1}`, `null`},
		// A role has the defaults of a set.
		{role + "replicas", `1`, `null`},
		{role + "startupPolicy", `"LeaderCreated"`, `["LeaderCreated","LeaderReady"]`},
		{role + "groupIdentity", `"Ordinal"`, `["Ordinal","Hash"]`},
		{role + "groupReplacementPolicy", `"PostTermination"`, `["Immediate","PostTermination"]`},
		{role + "rolloutStrategy.type", `"RollingUpdate"`, `["RollingUpdate"]`},
		{role + "rolloutStrategy.rollingUpdateConfiguration.maxUnavailable", `1`, `null`},
		{role + "leaderWorkerTemplate.size", `1`, `null`},
		{role + "leaderWorkerTemplate.restartPolicy", `"RecreateGroupOnPodRestart"`, `["Default","RecreateGroupOnPodRestart","RecreateGroupAfterStart","None"]`},
	})
	checkPresets(t, scalerFile, []preset{{"spec", `{"replicas":0}`, `null`}, {"spec.replicas", `0`, `null`}})
}

func TestFieldsOfDisaggregatedSets(t *testing.T) {
	expect.Equal(t, []string{"spec"}, readFile(t, disaggregatedFile).Spec.Versions[0].Schema.OpenAPIV3Schema.Required)
	expect.Equal(t, []string{"roles"}, propertyOf(t, disaggregatedFile, "spec").Required)
	expect.Equal(t, []string{"name"}, propertyOf(t, disaggregatedFile, "spec.roles[]").Required)
	expect.Equal(t, []string{"leaderWorkerTemplate"}, propertyOf(t, disaggregatedFile, "spec.roles[].spec").Required)
	expect.Equal(t, []string{"replicas"}, propertyOf(t, scalerFile, "spec").Required)
	for file, paths := range map[string]map[string]string{
		disaggregatedFile: {"spec.roles": "name", "status.roleStatuses": "name", "status.conditions": "type"},
		scalerFile:        {"status.conditions": "type"},
	} {
		for path, key := range paths {
			list := propertyOf(t, file, path)
			expect.That(t, list.XListType != nil && *list.XListType == "map", "%s: %s is no map", file, path)
			expect.Equalf(t, []string{key}, list.XListMapKeys, "%s: %s", file, path)
		}
	}
	metadata := propertyOf(t, disaggregatedFile, "spec.roles[].metadata")
	for _, name := range []string{"annotations", "finalizers", "labels", "name", "namespace"} {
		expect.That(t, metadata.Properties[name].Type != "" && len(metadata.Properties) == 5, "metadata has %v", metadata.Properties)
	}
}

// disaggregated is a set with these members of spec. Each role gets a template if it has a spec.
func disaggregated(tb testing.TB, spec string) object {
	tb.Helper()
	in := parse(tb, spec)
	roles, _ := in["roles"].([]any)
	for _, role := range roles {
		if spec, has := role.(object)["spec"].(object); has {
			merge(spec, parse(tb, `leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c, image: i}]}}}`))
		}
	}
	return object{
		"apiVersion": "disaggregatedset.x-k8s.io/v1", "kind": "DisaggregatedSet",
		"metadata": object{"name": "d", "namespace": "ns"}, "spec": in,
	}
}

func TestRulesOfDisaggregatedSets(t *testing.T) {
	const mixed = "spec: replicas must be zero for all non-External roles or non-zero for all non-External roles"
	g := gateOf(t, disaggregatedFile)
	for _, tt := range []rule{
		{"one role", `roles: [{name: a, spec: {}}]`, nil},
		{"two roles", `roles: [{name: a, spec: {replicas: 4}}, {name: b, spec: {}}]`, nil},
		{"all at zero", `roles: [{name: a, spec: {replicas: 0}}, {name: b, spec: {replicas: 0}}]`, nil},
		{"without a spec", `roles: [{name: a}, {name: b, spec: {replicas: 0}}]`, nil},
		{"one at zero", `roles: [{name: a, spec: {replicas: 0}}, {name: b, spec: {replicas: 1}}]`, []string{mixed}},
		{"one without a spec", `roles: [{name: a}, {name: b, spec: {}}]`, []string{mixed}},
		{"one at zero, Static", `roles: [{name: a, scaling: {}, spec: {replicas: 0}}, {name: b, spec: {}}]`, []string{mixed}},
		{"one at zero, External", `roles: [{name: a, scaling: {mode: External}, spec: {replicas: 0}}, {name: b, spec: {}}]`, nil},
		{"all External", `roles: [{name: a, scaling: {mode: External}, spec: {replicas: 0}}, {name: b, scaling: {mode: External}, spec: {}}]`, nil},
		{"100 slices", `{slices: 100, placementPolicy: {type: ExclusiveTopology, topology: rack}, roles: [{name: a-1, spec: {}}]}`, nil},
		{"no slices", `{slices: 0, roles: [{name: a, spec: {}}]}`, []string{"spec.slices: spec.slices in body should be greater than or equal to 1"}},
		{"101 slices", `{slices: 101, roles: [{name: a, spec: {}}]}`, []string{"spec.slices: spec.slices in body should be less than or equal to 100"}},
		{"a name with a capital", `roles: [{name: A, spec: {}}]`, []string{
			`spec.roles[0].name: spec.roles[0].name in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) { checkFaults(t, g.create(t, disaggregated(t, tt.spec)), tt.want) })
	}
	for count, isRight := range map[int]bool{0: false, 1: true, 10: true, 11: false} {
		var roles []string
		for i := range count {
			roles = append(roles, fmt.Sprintf("{name: r%d, spec: {}}", i))
		}
		faults := g.create(t, disaggregated(t, "roles: ["+strings.Join(roles, ", ")+"]"))
		expect.That(t, (len(faults) == 0) == isRight, "%d roles: %v", count, faults)
	}
}

// A change of a role makes another LeaderWorkerSet: what a set keeps for ever, a role may change.
func TestRolesMayChange(t *testing.T) {
	const claim = `leaderWorkerTemplate: {volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce]}}]}`
	g := gateOf(t, disaggregatedFile)
	for old, is := range map[string]string{
		`groupIdentity: Ordinal`: `groupIdentity: Hash`,
		claim:                    `replicas: 1`,
		`replicas: 1`:            claim,
		`leaderWorkerTemplate: {size: 4, subGroupPolicy: {subGroupSize: 2}}`: `leaderWorkerTemplate: {size: 4, subGroupPolicy: {subGroupSize: 4}}`,
		`leaderWorkerTemplate: {size: 2, subGroupPolicy: {subGroupSize: 2}}`: `leaderWorkerTemplate: {size: 2}`,
	} {
		before, after := disaggregated(t, "roles: [{name: a, spec: {"+old+"}}]"), disaggregated(t, "roles: [{name: a, spec: {"+is+"}}]")
		checkFaults(t, g.update(t, after, before), nil)
	}
}

// GET /scale of a scaler without replicas fails, and an autoscaler waits for ever.
func TestAScalerAlwaysHasReplicas(t *testing.T) {
	g := gateOf(t, scalerFile)
	for text, want := range map[string]int64{`{}`: 0, `{spec: {}}`: 0, `{spec: {replicas: 3}}`: 3} {
		in := parse(t, text)
		checkFaults(t, g.create(t, in), nil)
		expect.Equalf[any](t, want, in["spec"].(object)["replicas"], "%s", text)
	}
	checkFaults(t, g.create(t, parse(t, `{spec: {replicas: -1}}`)), []string{"spec.replicas: spec.replicas in body should be greater than or equal to 0"})
}
