package identity

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Life is what is known of one incarnation.
//
//	Alive ──deleted, or something above it is──► Doomed ──removed──► Gone
//
// There is no way back: a UID is never given out twice.
type Life int8

const (
	// Unknown is a life nobody looked at. It is never reason to write.
	Unknown Life = iota
	// Alive exists, and nothing up its chain of owners is on its way out.
	Alive
	// Doomed exists, but it, or something up its chain, is terminating or gone.
	Doomed
	// Gone was looked for in the API server itself and is no longer there.
	Gone
)

// Lives tells what is known of the owners named in a snapshot.
type Lives map[types.UID]Life

// Class is what an object that bears one of our names is to us.
type Class int8

const (
	// Member is alive, and its controller is the claimant.
	Member Class = iota
	// Ghost is on its way out, or its chain ends in a life that is over.
	Ghost
	// Orphan is alive and ours by labels, and has no controller.
	Orphan
	// Squatter is alive and somebody else's, under a name we need.
	Squatter
)

// Claimant holds the UIDs whose controller references make an object a member.
// Most claimants have one; the pods of a group may hang from their StatefulSet
// or from their leader directly. The empty claimant has no members.
type Claimant []types.UID

func (c Claimant) owns(owner *metav1.OwnerReference) bool {
	return owner.UID != "" && slices.Contains(c, owner.UID)
}

// Classify tells what obj is to the claimant. ours tells whether obj's labels
// are those that the claimant would have given it.
//
// Only the UID of the controller counts. Names and labels can be forged, and
// both outlive the object that bore them.
func Classify(obj metav1.Object, claimant Claimant, ours bool, lives Lives) Class {
	if obj.GetDeletionTimestamp() != nil {
		return Ghost
	}
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil {
		return classifyUnowned(ours)
	}
	if claimant.owns(owner) {
		return Member
	}
	if life := lives[owner.UID]; life == Doomed || life == Gone {
		return Ghost
	}
	return Squatter
}

func classifyUnowned(ours bool) Class {
	if ours {
		return Orphan
	}
	return Squatter
}

// Claim holds objects sorted by what they are to one claimant. There is no
// fifth kind.
type Claim[T metav1.Object] struct {
	Members   []T
	Ghosts    []T
	Orphans   []T
	Squatters []T
}

// Sort puts every object in its class. The order within a class is that of objs.
// Only what has no controller is asked whether it is ours.
func Sort[T metav1.Object](objs []T, claimant Claimant, ours func(T) bool, lives Lives) Claim[T] {
	var c Claim[T]
	for _, obj := range objs {
		unowned := metav1.GetControllerOfNoCopy(obj) == nil
		switch Classify(obj, claimant, unowned && ours(obj), lives) {
		case Member:
			c.Members = append(c.Members, obj)
		case Ghost:
			c.Ghosts = append(c.Ghosts, obj)
		case Orphan:
			c.Orphans = append(c.Orphans, obj)
		case Squatter:
			c.Squatters = append(c.Squatters, obj)
		}
	}
	return c
}

// Member returns the first member, or the zero value when there is none.
func (c Claim[T]) Member() (member T) {
	if len(c.Members) > 0 {
		member = c.Members[0]
	}
	return member
}

// Orphan returns the first orphan, or the zero value when there is none.
func (c Claim[T]) Orphan() (orphan T) {
	if len(c.Orphans) > 0 {
		orphan = c.Orphans[0]
	}
	return orphan
}

// Empty tells whether nothing at all bears the name.
func (c Claim[T]) Empty() bool {
	return len(c.Members)+len(c.Ghosts)+len(c.Orphans)+len(c.Squatters) == 0
}

// IsGarbage tells whether obj can be deleted on sight: its controller is gone
// for certain, no other owner would keep it, nobody deleted it yet, and nobody
// asked for it to be orphaned.
func IsGarbage(obj metav1.Object, lives Lives) bool {
	owners := obj.GetOwnerReferences()
	if obj.GetDeletionTimestamp() != nil || len(owners) != 1 {
		return false
	}
	if lives[owners[0].UID] != Gone {
		return false
	}
	for _, finalizer := range obj.GetFinalizers() {
		if finalizer == metav1.FinalizerOrphanDependents {
			return false
		}
	}
	return true
}
