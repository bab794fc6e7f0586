package chart

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"lockstep.dev/lockstep/internal/install"
)

// The default base is what "lockstep install" applies with the defaults.
func TestTheKustomizeBaseIsWhatInstallApplies(t *testing.T) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../config/default")
	must(t, err)
	got := map[string]*unstructured.Unstructured{}
	for _, resource := range built.Resources() {
		text, err := resource.AsYAML()
		must(t, err)
		u := decode(t, resource.GetName(), string(text))
		if len(u.GetAnnotations()) == 0 {
			u.SetAnnotations(nil)
		}
		if u.GetKind() != "Namespace" {
			got[title(u)] = u
		}
	}
	compareObjects(t, applied(t, install.Options{Image: "lockstep"}), got)
}
