package bundle

import (
	_ "embed" // the definition
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

//go:embed definition.yaml
var definitionText string

// definitionOf makes the CustomResourceDefinition of a served kind.
func definitionOf(kind *meta.RESTMapping, moment time.Time) *unstructured.Unstructured {
	of, scope := kind.GroupVersionKind, "Cluster"
	if kind.Scope.Name() == meta.RESTScopeNameNamespace {
		scope = "Namespaced"
	}
	text := fmt.Sprintf(definitionText, kind.Resource.GroupResource().String(), of.Group, scope, kind.Resource.Resource,
		strings.ToLower(of.Kind), of.Kind, of.Version, moment.UTC().Format(time.RFC3339))
	made := &unstructured.Unstructured{}
	_ = yaml.Unmarshal([]byte(text), made) // the text is quoted
	return made
}
