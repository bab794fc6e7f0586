package disaggregatedcache

import (
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/identity"
)

// newOf returns an empty object of a type.
func newOf[T client.Object]() T {
	return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
}

// kindOf is the kind of a type, which has the name of the kind.
func kindOf[T client.Object]() identity.Kind {
	return identity.Kind(reflect.TypeFor[T]().Elem().Name())
}
