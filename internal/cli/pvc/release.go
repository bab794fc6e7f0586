package pvc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/pvc"
)

// Verb, Group and Resource are the permission to release PVCs.
const (
	Verb     = "release"
	Group    = "protection.lockstep.dev"
	Resource = "claims"
)

// ErrChanged means that the object is not as it was shown to the user.
var ErrChanged = errors.New("it has changed since it was shown: check it and run the command again")

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

// Release writes the release token onto the object that was shown, if its holders are the same.
func Release(ctx context.Context, c client.Client, shown client.Object) error {
	now := shown.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, client.ObjectKeyFromObject(shown), now); err != nil {
		return err
	}
	switch {
	case !same(now, shown):
		return ErrChanged
	case StandingOf(now) != Held:
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": now.GetUID(), "resourceVersion": now.GetResourceVersion(),
		"annotations": map[string]string{pvc.ReleaseAnnotation: string(now.GetUID())},
	}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	return c.Patch(ctx, now, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(clilws.FieldOwner))
}

// same reports whether two reads show the same incarnation, held by the same.
func same(a, b client.Object) bool {
	if a.GetUID() != b.GetUID() || (a.GetDeletionTimestamp() == nil) != (b.GetDeletionTimestamp() == nil) {
		return false
	}
	for _, key := range []string{pvc.HoldersAnnotation, pvc.HeldClaimsAnnotation} {
		if a.GetAnnotations()[key] != b.GetAnnotations()[key] {
			return false
		}
	}
	return true
}
