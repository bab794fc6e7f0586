package identity

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Life is the state of one incarnation.
//
//	Alive ──deleted, or something above it is──► Doomed ──removed──► Gone
//
// There is no way back: a UID is never given out twice.
type Life int8

const (
	// Unknown is the state of an object that was not read. It is never reason to write.
	Unknown Life = iota
	// Alive exists, and nothing up its chain of owners is terminating.
	Alive
	// Doomed exists, but it, or something up its chain, is terminating or gone.
	Doomed
	// Gone was not found by a live read.
	Gone
)

// Lives are the states of the owners named in a snapshot.
type Lives map[types.UID]Life

// Gone returns the UIDs of the owners that do not exist.
func (l Lives) Gone() []types.UID {
	gone := maps.Clone(l)
	maps.DeleteFunc(gone, func(_ types.UID, life Life) bool { return life != Gone })
	return slices.Collect(maps.Keys(gone))
}

// Class is what an object under a name of the set is to it.
type Class int8

const (
	// Owned is alive, and its controller is the claimant.
	Owned Class = iota
	// Previous is terminating, or its chain of owners ends in a UID that no longer exists.
	Previous
	// Orphan is alive and has labels of the claimant and no controller.
	Orphan
	// Foreign is alive and another owner's.
	Foreign
)

// Claimant holds the UIDs whose controller references make an object owned. The empty claimant owns nothing.
type Claimant []types.UID

// Classify returns the class of an object. ours reports whether its labels are those that the claimant would have given
// it. Only an object without a controller is passed to ours.
//
// Only the UID of the controller counts. Names and labels can be forged, and both outlive the object that had them.
func Classify[T metav1.Object](obj T, claimant Claimant, ours func(T) bool, lives Lives) Class {
	owner := metav1.GetControllerOfNoCopy(obj)
	switch {
	case obj.GetDeletionTimestamp() != nil:
		return Previous
	case owner == nil && ours(obj):
		return Orphan
	case owner == nil:
		return Foreign
	case owner.UID != "" && slices.Contains(claimant, owner.UID):
		return Owned
	case lives[owner.UID] == Doomed, lives[owner.UID] == Gone:
		return Previous
	}
	return Foreign
}

// Claim holds objects by their class to one claimant. There is no fifth class.
type Claim[T metav1.Object] struct {
	Owned    []T
	Previous []T
	Orphans  []T
	Foreign  []T
}

// Sort puts every object in its class. The order within a class is that of objs.
func Sort[T metav1.Object](objs []T, claimant Claimant, ours func(T) bool, lives Lives) Claim[T] {
	var by [Foreign + 1][]T
	for _, obj := range objs {
		class := Classify(obj, claimant, ours, lives)
		by[class] = append(by[class], obj)
	}
	return Claim[T]{by[Owned], by[Previous], by[Orphan], by[Foreign]}
}

// Own returns the first owned object, or the zero value when there is none.
func (c Claim[T]) Own() T { return first(c.Owned) }

// Orphan returns the first orphan, or the zero value when there is none.
func (c Claim[T]) Orphan() T { return first(c.Orphans) }

func first[T any](objs []T) (object T) {
	if len(objs) > 0 {
		object = objs[0]
	}
	return object
}

// Named returns the objects of a name: a claim may be to more than one.
func (c Claim[T]) Named(name string) Claim[T] {
	named := func(objects []T) []T {
		return slices.DeleteFunc(slices.Clone(objects), func(object T) bool { return object.GetName() != name })
	}
	return Claim[T]{named(c.Owned), named(c.Previous), named(c.Orphans), named(c.Foreign)}
}

// Empty reports whether no object has the name.
func (c Claim[T]) Empty() bool {
	return len(c.Owned)+len(c.Previous)+len(c.Orphans)+len(c.Foreign) == 0
}

// IsGarbage reports whether an object can be deleted on sight: its only owner is gone, it is
// not being deleted, and its dependents are not to be orphaned.
func IsGarbage(obj metav1.Object, lives Lives) bool {
	owners := obj.GetOwnerReferences()
	return obj.GetDeletionTimestamp() == nil && len(owners) == 1 && lives[owners[0].UID] == Gone &&
		!slices.Contains(obj.GetFinalizers(), metav1.FinalizerOrphanDependents)
}
