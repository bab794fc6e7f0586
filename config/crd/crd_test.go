package crd_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/utils/ptr"
)

// The rules must compile and stay within the cost the API server grants, or it
// refuses the whole definition.
func TestDefinitionIsAccepted(t *testing.T) {
	definition := readCRD(t)
	apiextensionsv1.SetDefaults_CustomResourceDefinition(definition)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&definition.Spec)
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(definition, &internal, nil); err != nil {
		t.Fatal(err)
	}
	internal.Status.StoredVersions = []string{"v1"}
	for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), &internal) {
		t.Error(err)
	}
	if internal.Spec.Conversion.Strategy != apiextensions.NoneConverter {
		t.Errorf("conversion %q, want None", internal.Spec.Conversion.Strategy)
	}
}

func TestIdentity(t *testing.T) {
	definition := readCRD(t)
	want := apiextensionsv1.CustomResourceDefinitionSpec{
		Group:      "leaderworkerset.x-k8s.io",
		Scope:      apiextensionsv1.NamespaceScoped,
		Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
		Names: apiextensionsv1.CustomResourceDefinitionNames{
			Kind: "LeaderWorkerSet", ListKind: "LeaderWorkerSetList",
			Plural: "leaderworkersets", Singular: "leaderworkerset", ShortNames: []string{"lws"},
		},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true,
			Subresources: &apiextensionsv1.CustomResourceSubresources{
				Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				Scale: &apiextensionsv1.CustomResourceSubresourceScale{
					SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas",
					LabelSelectorPath: ptr.To(".status.hpaPodSelector"),
				},
			},
			AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
				{Name: "Ready", Type: "integer", JSONPath: ".status.readyReplicas"},
				{Name: "Desired", Type: "integer", JSONPath: ".spec.replicas"},
				{Name: "Up-to-date", Type: "integer", JSONPath: ".status.updatedReplicas"},
				{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
			},
		}},
	}
	got := definition.Spec.DeepCopy()
	got.Versions[0].Schema = nil
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if definition.Name != "leaderworkersets.leaderworkerset.x-k8s.io" {
		t.Errorf("name %q", definition.Name)
	}
}

// property finds the schema at a dotted path.
func property(t *testing.T, path string) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	at := *readCRD(t).Spec.Versions[0].Schema.OpenAPIV3Schema
	for step := range strings.SplitSeq(path, ".") {
		next, found := at.Properties[step]
		if !found {
			t.Fatalf("no %q in %q", step, path)
		}
		at = next
	}
	return at
}

func TestDefaultsAndEnums(t *testing.T) {
	const template, rolling = "spec.leaderWorkerTemplate.", "spec.rolloutStrategy.rollingUpdateConfiguration."
	tests := []struct {
		path, fallback string
		enum           []string
	}{
		{"spec.replicas", `1`, nil},
		{"spec.startupPolicy", `"LeaderCreated"`, []string{"LeaderCreated", "LeaderReady"}},
		{"spec.networkConfig.subdomainPolicy", ``, []string{"Shared", "UniquePerReplica"}},
		{"spec.rolloutStrategy.type", `"RollingUpdate"`, []string{"RollingUpdate"}},
		{rolling + "partition", `0`, nil},
		{rolling + "maxUnavailable", `1`, nil},
		{rolling + "maxSurge", `0`, nil},
		{template + "size", `1`, nil},
		{template + "restartPolicy", `"RecreateGroupOnPodRestart"`, []string{"Default", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"}},
		{template + "subGroupPolicy.subGroupPolicyType", `"LeaderWorker"`, []string{"LeaderWorker", "LeaderExcluded"}},
		{template + "subGroupPolicy.subGroupSize", ``, nil},
		{template + "persistentVolumeClaimRetentionPolicy.whenDeleted", ``, nil},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			schema := property(t, tt.path)
			var fallback string
			if schema.Default != nil {
				fallback = string(schema.Default.Raw)
			}
			if fallback != tt.fallback {
				t.Errorf("default %s, want %s", fallback, tt.fallback)
			}
			var enum []string
			for _, value := range schema.Enum {
				var text string
				if err := json.Unmarshal(value.Raw, &text); err != nil {
					t.Fatal(err)
				}
				enum = append(enum, text)
			}
			if diff := cmp.Diff(tt.enum, enum); diff != "" {
				t.Errorf("enum (-want +got):\n%s", diff)
			}
		})
	}
}

func TestShape(t *testing.T) {
	for path, want := range map[string][]string{
		"spec":                      {"leaderWorkerTemplate"},
		"spec.leaderWorkerTemplate": {"workerTemplate"},
		"spec.networkConfig":        {"subdomainPolicy"},
		"spec.rolloutStrategy":      {"type"},
	} {
		if diff := cmp.Diff(want, property(t, path).Required); diff != "" {
			t.Errorf("required of %s (-want +got):\n%s", path, diff)
		}
	}
	replicas := property(t, "spec.replicas")
	if *replicas.Minimum != 0 || *replicas.Maximum != 1000000 {
		t.Errorf("replicas from %v to %v, want 0 to 1000000", *replicas.Minimum, *replicas.Maximum)
	}
	for _, name := range []string{"maxUnavailable", "maxSurge"} {
		if !property(t, "spec.rolloutStrategy.rollingUpdateConfiguration."+name).XIntOrString {
			t.Errorf("%s is not int-or-string", name)
		}
	}
	conditions := property(t, "status.conditions")
	if *conditions.XListType != "map" || !slices.Equal(conditions.XListMapKeys, []string{"type"}) {
		t.Errorf("conditions are a %s by %v, want a map by type", *conditions.XListType, conditions.XListMapKeys)
	}
	for _, template := range []string{"leaderTemplate", "workerTemplate"} {
		metadata := property(t, "spec.leaderWorkerTemplate."+template+".metadata")
		want := []string{"annotations", "finalizers", "labels", "name", "namespace"}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(metadata.Properties))); diff != "" {
			t.Errorf("metadata of %s (-want +got):\n%s", template, diff)
		}
	}
}

// clientSideApplyLimit is what all annotations of an object together may take;
// kubectl apply puts the whole object into one of them.
const clientSideApplyLimit = 256 * 1024

func TestDefinitionCanBeAppliedFromTheClientSide(t *testing.T) {
	raw, err := json.Marshal(readCRD(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > clientSideApplyLimit*9/10 {
		t.Errorf("the definition takes %d bytes, want at most nine tenths of %d", len(raw), clientSideApplyLimit)
	}
}

func TestOwnFieldsAreExplained(t *testing.T) {
	for _, path := range []string{"spec", "spec.replicas", "spec.leaderWorkerTemplate.size", "spec.leaderWorkerTemplate.workerTemplate", "status.readyReplicas"} {
		if property(t, path).Description == "" {
			t.Errorf("kubectl explain says nothing of %s", path)
		}
	}
}
