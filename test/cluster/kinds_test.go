package cluster

import (
	"fmt"
	"os"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// shards are a kind of the configuration with one path that leads nowhere.
const shards = `{apiVersion: drill.example.com/v1, kind: Shard, podTemplates: [spec.tmpl], claimTemplates: [spec.claims], claimName: "{template}-{name}"}`

// astrayKindsAreTold: a description that holds less than it promises is complained of,
// and what is right of it holds.
func astrayKindsAreTold(t *testing.T) {
	s := newGuarded(t)
	s.operatorSays("kind Shard of drill.example.com/v1 is not served")
	definition := s.define("drill.example.com", "v1", "Shard", "shards")
	s.claim("data-a", nil)
	shard := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "drill.example.com/v1", "kind": "Shard", "metadata": map[string]any{"namespace": s.namespace, "name": "a"},
		"spec": map[string]any{
			"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c"}}}},
			"claims":   []any{map[string]any{"metadata": map[string]any{"name": "data"}}},
		},
	}}
	s.eventually("a Shard can be made", func() error { return s.client.Create(t.Context(), shard) })
	s.says("data-a", "Shard/a")
	s.operatorSays(`on no Shard there is (read as drill.example.com/v1) leads "spec.tmpl" to a pod template: `)
	s.remove(shard)
	s.remove(definition)
	s.awaitFree("data-a")
}

// operatorSays waits until the log of the operator says something.
func (s *scene) operatorSays(what string) {
	s.Helper()
	s.eventually("the operator says "+what, func() error {
		text, err := os.ReadFile(bed.operator.Log)
		if err == nil && !strings.Contains(string(text), what) {
			return fmt.Errorf("it does not")
		}
		return err
	})
}

// define has the API server serve a kind with any fields.
func (s *guarded) define(group, version, kind, plural string) client.Object {
	s.Helper()
	open := true
	definition := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group, Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, a drill"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &open}},
			}},
		},
	}
	s.create(asUnstructured(s.T, definition))
	return asUnstructured(s.T, definition)
}
