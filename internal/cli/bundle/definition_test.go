package bundle

import (
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names that YAML would read as something else stay names.
func TestDefinitionOfAKindHasItsNames(t *testing.T) {
	made := definitionOf(&meta.RESTMapping{
		Resource:         schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "no"},
		GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Yes"}, Scope: meta.RESTScopeNamespace,
	}, time.Unix(1_700_000_000, 0))
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(made.Object, crd); err != nil {
		t.Fatal(err)
	}
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "no", Singular: "yes", Kind: "Yes", ListKind: "YesList"}
	isStored := len(crd.Spec.Versions) == 1 && crd.Spec.Versions[0].Storage && crd.Status.StoredVersions[0] == "v1"
	if crd.Name != "no.example.com" || crd.Spec.Group != "example.com" || crd.Spec.Scope != apiextensionsv1.NamespaceScoped || !isStored ||
		crd.Spec.Names.Kind != names.Kind || crd.Spec.Names.Plural != names.Plural || crd.Status.AcceptedNames.ListKind != names.ListKind ||
		!apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		t.Errorf("got %+v", crd)
	}
}
