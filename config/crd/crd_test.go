package crd_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/config/crd"
)

const setFile = "leaderworkerset.x-k8s.io_leaderworkersets.yaml"

// clientSideApplyLimit is what all annotations of an object together may take;
// kubectl apply puts the whole object into one of them.
const clientSideApplyLimit = 256 * 1024

func readCRD(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	raw, err := crd.Files.ReadFile(setFile)
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &definition); err != nil {
		t.Fatal(err)
	}
	return &definition
}

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
	_ = cmp.Diff
}
