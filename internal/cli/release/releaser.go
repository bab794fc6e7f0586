package release

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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// FieldOwner owns the release tokens that users write.
const FieldOwner = "kubectl-lockstep"

// attempts bounds how often a write is tried that others are faster than.
const attempts = 5

// Verb, Group and Resource are what it takes to release a claim.
const (
	Verb     = "release"
	Group    = "protection.lockstep.dev"
	Resource = "claims"
)

// ErrChanged is said when what was consented to is not what stands there now.
var ErrChanged = errors.New("it has changed since it was shown: look at it again")

// Releaser releases.
type Releaser struct {
	client.Client
	// DryRun has the API server try every write and keep nothing.
	DryRun bool
}

// Open returns a Releaser. It can write nothing but annotations of claims and
// namespaces, and delete nothing but claims.
func Open(config *rest.Config) (*Releaser, error) {
	narrow := rest.CopyConfig(config)
	narrow.Wrap(func(next http.RoundTripper) http.RoundTripper { return gate{next} })
	narrow.WarningHandler = rest.NoWarnings{}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	c, err := client.New(narrow, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	return &Releaser{Client: c}, nil
}

// gate lets through what a release is made of.
type gate struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (g gate) RoundTrip(request *http.Request) (*http.Response, error) {
	path := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	// A path may have a prefix, when a proxy stands before the API server.
	ends := func(pattern ...string) bool {
		if len(path) < len(pattern) {
			return false
		}
		for i, part := range path[len(path)-len(pattern):] {
			if pattern[i] != "*" && pattern[i] != part {
				return false
			}
		}
		return true
	}
	claim := ends("v1", "namespaces", "*", "persistentvolumeclaims", "*")
	allowed := map[string]bool{
		http.MethodGet:    true,
		http.MethodPatch:  claim || ends("v1", "namespaces", "*"),
		http.MethodDelete: claim,
		http.MethodPost:   ends("v1", "selfsubjectaccessreviews"),
	}
	if !allowed[request.Method] {
		return nil, fmt.Errorf("refused to send %s %s: it is no part of a release", request.Method, request.URL.Path)
	}
	return g.next.RoundTrip(request)
}

// May reports whether the user has the permission. Where the API server does not
// say, the write itself will.
func (r *Releaser) May(ctx context.Context, object client.Object) (bool, error) {
	asked := &authorizationv1.ResourceAttributes{Verb: Verb, Group: Group, Resource: Resource, Namespace: object.GetNamespace(), Name: object.GetName()}
	if _, isNamespace := object.(*corev1.Namespace); isNamespace {
		asked.Namespace, asked.Name = object.GetName(), ""
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: asked}}
	err := r.Create(ctx, review)
	if apierrors.IsForbidden(err) {
		return true, nil
	}
	return review.Status.Allowed, err
}

// Release writes the token onto the UID and resourceVersion that was shown, or onto a
// later version with the same holders.
func (r *Releaser) Release(ctx context.Context, shown client.Object) (client.Object, error) {
	now := shown
	for attempt := 1; ; attempt++ {
		standing, err := Judge(now)
		switch {
		case err != nil:
			return nil, err
		case !Same(now, shown):
			return nil, ErrChanged
		case standing != Held && standing != HeldBack:
			return now, nil
		}
		written, err := r.write(ctx, now)
		if !apierrors.IsConflict(err) || attempt == attempts {
			return written, err
		}
		now = shown.DeepCopyObject().(client.Object)
		if err := r.Get(ctx, client.ObjectKeyFromObject(shown), now); err != nil {
			return nil, err
		}
	}
}

func (r *Releaser) write(ctx context.Context, object client.Object) (client.Object, error) {
	if object.GetUID() == "" || object.GetResourceVersion() == "" {
		return nil, errors.New("what has no UID or version cannot be released")
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(),
		"annotations": map[string]string{pvc.ReleaseAnnotation: string(object.GetUID())},
	}})
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	options := []client.PatchOption{client.FieldOwner(FieldOwner)}
	if r.DryRun {
		options = append(options, client.DryRunAll)
	}
	after := object.DeepCopyObject().(client.Object)
	if err := r.Patch(ctx, after, client.RawPatch(types.MergePatchType, patch), options...); err != nil {
		return nil, err
	}
	return after, nil
}

// Delete deletes the incarnation of a claim that was released, as long as its
// token stands, in the same words.
func (r *Releaser) Delete(ctx context.Context, released *corev1.PersistentVolumeClaim) error {
	now := released
	for attempt := 1; ; attempt++ {
		uid, version := now.UID, now.ResourceVersion
		options := []client.DeleteOption{client.Preconditions{UID: &uid, ResourceVersion: &version}}
		if r.DryRun {
			options = append(options, client.DryRunAll)
		}
		err := r.Client.Delete(ctx, now.DeepCopy(), options...)
		if !apierrors.IsConflict(err) || attempt == attempts {
			return err
		}
		again := &corev1.PersistentVolumeClaim{}
		if err := r.Get(ctx, client.ObjectKeyFromObject(released), again); err != nil {
			return client.IgnoreNotFound(err)
		}
		standing, err := Judge(again)
		switch {
		case err != nil:
			return err
		case standing == Leaving && again.UID == released.UID:
			return nil
		case !Same(again, released), standing != Released && standing != Free:
			return ErrChanged
		}
		now = again
	}
}
