package fakeapi

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/identity"
)

// KindOf is the kind of a typed object.
func KindOf(object any) identity.Kind {
	if meta, ok := object.(*metav1.PartialObjectMetadata); ok {
		return identity.Kind(meta.Kind)
	}
	if foreign, ok := object.(*unstructured.Unstructured); ok {
		return identity.Kind(foreign.GetKind())
	}
	return identity.Kind(reflect.TypeOf(object).Elem().Name())
}

// NameOf is the name that an object bears.
func NameOf(object client.Object) Name {
	return Name{Kind: KindOf(object), Namespace: object.GetNamespace(), Name: object.GetName()}
}
