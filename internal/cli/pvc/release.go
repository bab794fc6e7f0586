package pvc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
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
	// Held: a DELETE is refused, and a release lifts that.
	Held Standing = iota
	// HeldBack: a terminating PVC keeps its finalizers because of its annotations, and a release lifts that.
	HeldBack
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
	leaving := object.GetDeletionTimestamp() != nil
	switch {
	case leaving && (!held || isNamespace):
		return Leaving
	case pvc.Released(object):
		return Released
	case leaving:
		return HeldBack
	case held:
		return Held
	}
	return Free
}

// Releaser releases PVCs and namespaces.
type Releaser struct {
	client.Client
	// DryRun makes the API server try every write and store nothing.
	DryRun bool
}

// OpenReleaser returns a Releaser that writes annotations of PVCs and namespaces, and deletes PVCs.
func OpenReleaser(config *rest.Config) (*Releaser, error) {
	c, err := client.New(clilws.Restrict(config, isRelease), client.Options{Scheme: clilws.Scheme()})
	return &Releaser{Client: c}, err
}

// isRelease reports whether a request is part of a release. A proxy may add a prefix to the path.
func isRelease(request *http.Request) bool {
	_, path, _ := strings.Cut(request.URL.Path, "/api/v1/namespaces/")
	parts := strings.Split(path, "/")
	claim := len(parts) == 3 && parts[1] == "persistentvolumeclaims"
	switch request.Method {
	case http.MethodPatch:
		return claim || len(parts) == 1 && path != ""
	case http.MethodDelete:
		return claim
	}
	return request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/selfsubjectaccessreviews")
}

// May reports whether the user has the permission. If the API server does not say, the write itself will.
func (r *Releaser) May(ctx context.Context, object client.Object) (bool, error) {
	asked := &authorizationv1.ResourceAttributes{Verb: Verb, Group: Group, Resource: Resource, Namespace: object.GetNamespace(), Name: object.GetName()}
	if asked.Namespace == "" {
		asked.Namespace, asked.Name = asked.Name, ""
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: asked}}
	err := r.Create(ctx, review)
	if apierrors.IsForbidden(err) {
		return true, nil
	}
	return review.Status.Allowed, err
}

// Release writes the release token onto the object that was shown, if its holders are the same.
func (r *Releaser) Release(ctx context.Context, shown client.Object) error {
	now := shown.DeepCopyObject().(client.Object)
	if err := r.Get(ctx, client.ObjectKeyFromObject(shown), now); err != nil {
		return err
	}
	switch standing := StandingOf(now); {
	case !same(now, shown):
		return ErrChanged
	case standing != Held && standing != HeldBack:
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": now.GetUID(), "resourceVersion": now.GetResourceVersion(),
		"annotations": map[string]string{pvc.ReleaseAnnotation: string(now.GetUID())},
	}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	options := []client.PatchOption{client.FieldOwner(clilws.FieldOwner)}
	if r.DryRun {
		options = append(options, client.DryRunAll)
	}
	return r.Patch(ctx, now, client.RawPatch(types.MergePatchType, patch), options...)
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

// Delete deletes the PVC that was shown, if its holders are the same. The policy refuses it if the
// release is over. A conflict is read again: the operator dates the token at that moment.
func (r *Releaser) Delete(ctx context.Context, shown *corev1.PersistentVolumeClaim) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now := &corev1.PersistentVolumeClaim{}
		if err := r.Get(ctx, client.ObjectKeyFromObject(shown), now); err != nil {
			return err
		}
		if !same(now, shown) {
			return ErrChanged
		}
		options := []client.DeleteOption{client.Preconditions{UID: &now.UID, ResourceVersion: &now.ResourceVersion}}
		if r.DryRun {
			options = append(options, client.DryRunAll)
		}
		return r.Client.Delete(ctx, now, options...)
	})
}
