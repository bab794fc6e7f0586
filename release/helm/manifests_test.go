//go:build drills

package helm

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// The API server accepts dist/install.yaml as "kubectl apply --server-side" sends it, twice.
func TestInstallYAML(t *testing.T) {
	text, err := exec.Command(bed.Operator.Program, "install", "--print", "--image", "registry.example/lockstep:v1").Output()
	must(t, "print the manifests", err)
	for range 2 {
		for document := range strings.SplitSeq(string(text), "---\n") {
			u := &unstructured.Unstructured{}
			must(t, "read a manifest", yaml.Unmarshal([]byte(document), &u.Object))
			if len(u.Object) == 0 {
				continue
			}
			must(t, "apply "+u.GetKind()+" "+u.GetName(),
				bed.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubectl")))
			if u.GetKind() != "Namespace" {
				t.Cleanup(func() { _ = client.IgnoreNotFound(bed.Client.Delete(context.Background(), u)) })
			}
		}
	}
	t.Cleanup(func() { remove(t, setsName) })
}
