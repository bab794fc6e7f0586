// Package volcano is a fake of the gang scheduler Volcano: it defines Volcano's kind
// PodGroup, with no more fields than Lockstep writes.
//
// It refuses to schedule anything.
package volcano

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	group    = "scheduling.volcano.sh"
	version  = "v1beta1"
	singular = "podgroup"
	plural   = "podgroups"
	kind     = "PodGroup"
)

// Definition returns the CustomResourceDefinition of PodGroups.
func Definition() *apiextensionsv1.CustomResourceDefinition {
	whole := apiextensionsv1.JSONSchemaProps{Type: "integer", Format: "int32"}
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	quantity := apiextensionsv1.JSONSchemaProps{
		XIntOrString: true,
		AnyOf:        []apiextensionsv1.JSONSchemaProps{{Type: "integer"}, {Type: "string"}},
	}
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"minMember": whole,
		"queue":     text,
		"minResources": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{
			Allows: true, Schema: &quantity,
		}},
	}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: singular, Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
				}},
			}},
		},
	}
}

// PodGroups returns an empty list of PodGroups.
func PodGroups() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(group + "/" + version)
	list.SetKind(kind + "List")
	return list
}
