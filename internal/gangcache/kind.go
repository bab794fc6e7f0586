// Package gangcache reads objects of kinds that gang schedulers bring: from memory while the API server serves them, or
// live.
//
// It knows why a kind cannot be read. It refuses to know what its objects are for.
package gangcache

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
)

// Kind is a kind that a gang scheduler reads.
type Kind struct {
	schema.GroupVersionKind
	Is identity.Kind
	// objects are those in memory, unless the kind is read live. Where it is nil, a user reads, and may lack permissions.
	objects Objects
	isLive  bool
	// unserved and forbidden say what is missing.
	unserved, forbidden string
}

// Volcano is the kind of Volcano's PodGroups.
func Volcano(objects Objects) Kind {
	return Kind{
		GroupVersionKind: gang.Kind, Is: identity.KindPodGroup, objects: objects,
		unserved: "the API server does not serve podgroups.scheduling.volcano.sh: install volcano, or take it away from this set; " +
			"groups are not placed as gangs",
		forbidden: "podgroups.scheduling.volcano.sh of volcano cannot be read: permission is missing; groups of this set are not placed as gangs",
	}
}

// Native is a kind of Kubernetes' own scheduler.
func Native(kind schema.GroupVersionKind, is identity.Kind, objects Objects) Kind {
	return Kind{
		GroupVersionKind: kind, Is: is, objects: objects,
		unserved:  fmt.Sprintf("the API server does not serve %s %s: serve it, with the feature gate GenericWorkload; a new set gets no pods until then", kind.GroupVersion(), kind.Kind),
		forbidden: fmt.Sprintf("%s %s cannot be read: permission is missing; a new set gets no pods until then", kind.GroupVersion(), kind.Kind),
	}
}

// WithoutMemory is the kind, whose objects are read live each time.
func (k Kind) WithoutMemory() Kind {
	k.isLive = true
	return k
}

// Read reads an object, or says what is missing. What memory lacks is read live, unless memory is complete: an object may
// be new, or lack our labels.
func (k Kind) Read(ctx context.Context, live client.Reader, key types.NamespacedName, isComplete bool) (found *unstructured.Unstructured, missing string, err error) {
	store, isAbsent := k.store()
	if isAbsent {
		return nil, k.unserved, nil
	}
	if store != nil {
		object, exists, err := store.GetByKey(key.String())
		if found, _ = object.(*unstructured.Unstructured); err != nil || exists || isComplete {
			return found, "", err
		}
	}
	found = &unstructured.Unstructured{}
	found.SetGroupVersionKind(k.GroupVersionKind)
	err = live.Get(ctx, key, found)
	switch {
	case err == nil:
		return found, "", nil
	case apierrors.IsForbidden(err) && k.objects == nil:
		return nil, "", err // the operator may have the permission that a user lacks
	case apierrors.IsForbidden(err):
		return nil, k.forbidden, nil
	case Unserved(err):
		return nil, k.unserved, nil
	case apierrors.IsNotFound(err):
		return nil, "", nil
	}
	return nil, "", fmt.Errorf("read %s %q: %w", k.Kind, key, err)
}

func (k Kind) store() (store cache.Indexer, isAbsent bool) {
	if k.objects == nil || k.isLive {
		return nil, false
	}
	return k.objects.Store()
}

// OfSet returns the objects with the label of a set, or none before memory has them. A user reads them live.
func (k Kind) OfSet(ctx context.Context, live client.Reader, set types.NamespacedName) (all []*unstructured.Unstructured, err error) {
	if k.objects == nil {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(k.GroupVersionKind)
		list.SetKind(k.Kind + "List")
		err := live.List(ctx, list, client.InNamespace(set.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: set.Name})
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
		if err != nil && !Unserved(err) && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("list the %ss of %q: %w", k.Kind, set, err)
		}
		return all, nil
	}
	store, _ := k.store()
	if store == nil {
		return nil, nil
	}
	found, err := store.ByIndex(indexSet, set.String())
	for _, object := range found {
		if object, ok := object.(*unstructured.Unstructured); ok {
			all = append(all, object)
		}
	}
	return all, err
}

// Unserved reports whether the API server does not serve a kind. For a missing object of a
// served kind, the answer has no such cause.
func Unserved(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsMethodNotSupported(err) ||
		(apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse))
}
