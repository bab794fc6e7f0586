package pvc

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/pvc"
)

// Standing is what a release of an object would change.
type Standing int8

// The standings.
const (
	// Held: a DELETE is refused, or a terminating PVC keeps its finalizers, and a release lifts that.
	Held Standing = iota
	// Released: the release token names this UID.
	Released
	// Free: nothing refuses a DELETE.
	Free
	// Leaving: the object is terminating, and a release would change nothing.
	Leaving
)

// StandingOf returns the standing of a PVC or a namespace. A terminating namespace is past all refusal.
func StandingOf(object client.Object) Standing {
	held := object.GetAnnotations()[pvc.HoldersAnnotation] != ""
	_, isNamespace := object.(*corev1.Namespace)
	if isNamespace {
		count := object.GetAnnotations()[pvc.HeldClaimsAnnotation]
		held = count != "" && count != "0"
	}
	switch {
	case object.GetDeletionTimestamp() != nil && (!held || isNamespace):
		return Leaving
	case pvc.Released(object):
		return Released
	case held:
		return Held
	}
	return Free
}

// Release writes the release token onto the object as it was shown. It fails if the object has changed.
func Release(ctx context.Context, c client.Client, shown client.Object) error {
	next := shown.DeepCopyObject().(client.Object)
	next.GetAnnotations()[pvc.ReleaseAnnotation] = string(shown.GetUID()) // a held object has annotations
	return c.Patch(ctx, next, client.MergeFromWithOptions(shown, client.MergeFromWithOptimisticLock{}), client.FieldOwner(clilws.FieldOwner))
}
