package disaggregatedcache

import (
	"cmp"
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

// cmpNames orders objects by name: a cache lists in any order.
func cmpNames(a, b client.Object) int { return cmp.Compare(a.GetName(), b.GetName()) }
