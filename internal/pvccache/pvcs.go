package pvccache

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// NewNamespace is a namespace as the caches of protection know it: its metadata.
func NewNamespace(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}

// ProtectionCaches are what protection keeps in memory: every claim, and every
// namespace, as far as anything is asked of them. Objects are handed out without
// being copied: readers must never change them.
func ProtectionCaches() map[client.Object]cache.ByObject {
	shared := true
	return map[client.Object]cache.ByObject{
		&corev1.PersistentVolumeClaim{}: {UnsafeDisableDeepCopy: &shared, Transform: trimClaim},
		NewNamespace(""):                {UnsafeDisableDeepCopy: &shared, Transform: trimNamespace},
	}
}

// trimClaim leaves of a claim what protection reads: its metadata without foreign
// words, the volume and the phase.
func trimClaim(object any) (any, error) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return object, nil
	}
	trimWords(&claim.ObjectMeta)
	claim.Spec = corev1.PersistentVolumeClaimSpec{VolumeName: claim.Spec.VolumeName}
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.PersistentVolumeClaimPhase(one(string(claim.Status.Phase)))}
	return claim, nil
}

func trimNamespace(object any) (any, error) {
	if namespace, ok := object.(*metav1.PartialObjectMetadata); ok {
		trimWords(&namespace.ObjectMeta)
	}
	return object, nil
}

// trimWords leaves of labels and annotations those that protection knows.
func trimWords(meta *metav1.ObjectMeta) {
	meta.ManagedFields = nil
	foreign := func(key, _ string) bool { return !strings.HasPrefix(key, pvc.Prefix) }
	maps.DeleteFunc(meta.Annotations, foreign)
	maps.DeleteFunc(meta.Labels, foreign)
	internMetadata(meta)
	for i, finalizer := range meta.Finalizers {
		meta.Finalizers[i] = one(finalizer)
	}
}

// Claims reads claims, and the namespaces they are in.
type Claims struct {
	cached client.Reader
	// live must not read from a cache.
	live client.Reader
}

// NewClaims returns a Claims that reads caches filled with ProtectionCaches.
func NewClaims(cached, live client.Reader) *Claims {
	return &Claims{cached: cached, live: live}
}

// Get is a claim as the cache shows it, or nil. It must not be changed.
func (c *Claims) Get(ctx context.Context, key types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	return get(ctx, c.cached, key)
}

// Live is a claim as the API server shows it, or nil.
func (c *Claims) Live(ctx context.Context, key types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	return get(ctx, c.live, key)
}

func get(ctx context.Context, reader client.Reader, key types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	err := reader.Get(ctx, key, claim)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read claim %q: %w", key, err)
	}
	return claim, nil
}

// In are all claims of a namespace, as the cache shows them. They must not be
// changed.
func (c *Claims) In(ctx context.Context, namespace string) ([]corev1.PersistentVolumeClaim, error) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := c.cached.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list claims of %q: %w", namespace, err)
	}
	return list.Items, nil
}

// VolumeCaches are what protection keeps of volumes in memory, where they are ours
// to protect.
func VolumeCaches() map[client.Object]cache.ByObject {
	shared := true
	return map[client.Object]cache.ByObject{
		&corev1.PersistentVolume{}: {UnsafeDisableDeepCopy: &shared, Transform: trimPersistentVolume},
	}
}

// trimPersistentVolume leaves of a volume its metadata and its phase.
func trimPersistentVolume(object any) (any, error) {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok {
		return object, nil
	}
	trimWords(&volume.ObjectMeta)
	volume.Spec = corev1.PersistentVolumeSpec{}
	volume.Status = corev1.PersistentVolumeStatus{Phase: corev1.PersistentVolumePhase(one(string(volume.Status.Phase)))}
	return volume, nil
}

// Namespace is a namespace as the cache shows it; one that is not there has no words.
// That may be late, or of a life under the name that is over: something can be asked
// for by it, and nothing given up. It must not be changed.
func (c *Claims) Namespace(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	return namespaceFrom(ctx, c.cached, name)
}

// NamespaceNow is a namespace as the API server shows it; one that is not there has no
// words. What is in it and was seen before belongs to that very life, or is gone.
func (c *Claims) NamespaceNow(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	return namespaceFrom(ctx, c.live, name)
}

func namespaceFrom(ctx context.Context, reader client.Reader, name string) (*metav1.PartialObjectMetadata, error) {
	namespace := NewNamespace(name)
	err := reader.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read namespace %q: %w", name, err)
	}
	return namespace, nil
}

// one is the same string, held in memory once.
func one(text string) string { return unique.Make(text).Value() }

func internMap(texts map[string]string) map[string]string {
	if len(texts) == 0 {
		return nil
	}
	interned := make(map[string]string, len(texts))
	for key, value := range texts {
		interned[one(key)] = one(value)
	}
	return interned
}

// internMetadata has objects share the texts that they have in common.
func internMetadata(meta *metav1.ObjectMeta) {
	meta.Namespace, meta.GenerateName = one(meta.Namespace), one(meta.GenerateName)
	meta.Labels, meta.Annotations = internMap(meta.Labels), internMap(meta.Annotations)
	for i := range meta.OwnerReferences {
		owner := &meta.OwnerReferences[i]
		owner.APIVersion, owner.Kind, owner.Name = one(owner.APIVersion), one(owner.Kind), one(owner.Name)
	}
}
