package lwstest

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/test/fakeapi"
)

// The names of package fakeapi that builders and tests use most.
type (
	FakeStore  = fakeapi.Server
	FakeReader = fakeapi.Reader
	Objects    = fakeapi.Objects
	Name       = fakeapi.Name
)

// Namespace is where built objects live.
const Namespace = fakeapi.Namespace

// Epoch is when time begins.
var Epoch = fakeapi.Epoch

// NewStore is fakeapi.New.
func NewStore() *FakeStore { return fakeapi.New() }

// KindOf is fakeapi.KindOf.
func KindOf(object any) identity.Kind { return fakeapi.KindOf(object) }

// NameOf is fakeapi.NameOf.
func NameOf(object client.Object) Name { return fakeapi.NameOf(object) }

// Add is fakeapi.Add.
func Add[T client.Object](s *FakeStore, object T) T { return fakeapi.Add(s, object) }

// Edit is fakeapi.Edit.
func Edit[T client.Object](s *FakeStore, name string, change func(T)) T {
	return fakeapi.Edit(s, name, change)
}

// Find is fakeapi.Find.
func Find[T client.Object](s *FakeStore, name string) T { return fakeapi.Find[T](s, name) }

// All is fakeapi.All.
func All[T client.Object](objects Objects) []T { return fakeapi.All[T](objects) }

// Drop is fakeapi.Drop.
func Drop[T client.Object](s *FakeStore, name string) { fakeapi.Drop[T](s, name) }

// Terminate is fakeapi.Terminate.
func Terminate[T client.Object](s *FakeStore, name string, finalizers ...string) T {
	return fakeapi.Terminate[T](s, name, finalizers...)
}
