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

// NewNamespace returns a namespace as the caches hold it: metadata alone.
func NewNamespace(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}

// ProtectionCaches are the caches of all PVCs and namespaces, trimmed. Readers get the cached
// objects themselves, and must never change them.
func ProtectionCaches() map[client.Object]cache.ByObject {
	shared := true
	return map[client.Object]cache.ByObject{
		&corev1.PersistentVolumeClaim{}: {UnsafeDisableDeepCopy: &shared, Transform: trimClaim},
		NewNamespace(""):                {UnsafeDisableDeepCopy: &shared, Transform: trimNamespace},
	}
}

// unused is shared by all PVCs that have the condition.
var unused = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimUnused}}

// trimClaim keeps of a PVC its metadata with our labels and annotations, its volume, its phase,
// and whether it has the condition Unused.
func trimClaim(object any) (any, error) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return object, nil
	}
	trimMetadata(&claim.ObjectMeta)
	claim.Spec = corev1.PersistentVolumeClaimSpec{VolumeName: claim.Spec.VolumeName}
	status := corev1.PersistentVolumeClaimStatus{Phase: corev1.PersistentVolumeClaimPhase(one(string(claim.Status.Phase)))}
	for i := range claim.Status.Conditions {
		if claim.Status.Conditions[i].Type == corev1.PersistentVolumeClaimUnused {
			status.Conditions = unused
		}
	}
	claim.Status = status
	return claim, nil
}

func trimNamespace(object any) (any, error) {
	if namespace, ok := object.(*metav1.PartialObjectMetadata); ok {
		trimMetadata(&namespace.ObjectMeta)
	}
	return object, nil
}

// trimMetadata keeps our labels and annotations, and drops managedFields.
func trimMetadata(meta *metav1.ObjectMeta) {
	meta.ManagedFields = nil
	foreign := func(key, _ string) bool { return !strings.HasPrefix(key, pvc.Prefix) }
	maps.DeleteFunc(meta.Annotations, foreign)
	maps.DeleteFunc(meta.Labels, foreign)
	internMetadata(meta)
	for i, finalizer := range meta.Finalizers {
		meta.Finalizers[i] = one(finalizer)
	}
}

// Claims reads PVCs and their namespaces.
type Claims struct {
	cached client.Reader
	// live must not read from a cache.
	live client.Reader
}

// NewClaims returns a Claims. cached must have ProtectionCaches.
func NewClaims(cached, live client.Reader) *Claims {
	return &Claims{cached: cached, live: live}
}

// Get returns a cached PVC, or nil. It must not be changed.
func (c *Claims) Get(ctx context.Context, key types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	return get(ctx, c.cached, key)
}

// Live returns a PVC read live, or nil.
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
		return nil, fmt.Errorf("read PVC %q: %w", key, err)
	}
	return claim, nil
}

// In returns the cached PVCs of a namespace. They must not be changed.
func (c *Claims) In(ctx context.Context, namespace string) ([]corev1.PersistentVolumeClaim, error) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := c.cached.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list PVCs of %q: %w", namespace, err)
	}
	return list.Items, nil
}

// VolumeCaches are the caches of PersistentVolumes, trimmed, for clusters where no built-in
// controller protects them.
func VolumeCaches() map[client.Object]cache.ByObject {
	shared := true
	return map[client.Object]cache.ByObject{
		&corev1.PersistentVolume{}: {UnsafeDisableDeepCopy: &shared, Transform: trimPersistentVolume},
	}
}

// trimPersistentVolume keeps of a volume its metadata and phase.
func trimPersistentVolume(object any) (any, error) {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok {
		return object, nil
	}
	trimMetadata(&volume.ObjectMeta)
	volume.Spec = corev1.PersistentVolumeSpec{}
	volume.Status = corev1.PersistentVolumeStatus{Phase: corev1.PersistentVolumePhase(one(string(volume.Status.Phase)))}
	return volume, nil
}

// Namespace returns a cached namespace, empty if it does not exist. It may be late, or of another
// incarnation: it can add a hold, and must not end one. It must not be changed.
func (c *Claims) Namespace(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	return namespaceFrom(ctx, c.cached, name)
}

// NamespaceNow returns a namespace read live, empty if it does not exist.
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

// one returns an equal string that is in memory once.
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

// internMetadata makes objects share equal strings.
func internMetadata(meta *metav1.ObjectMeta) {
	meta.Namespace, meta.GenerateName = one(meta.Namespace), one(meta.GenerateName)
	meta.Labels, meta.Annotations = internMap(meta.Labels), internMap(meta.Annotations)
	for i := range meta.OwnerReferences {
		owner := &meta.OwnerReferences[i]
		owner.APIVersion, owner.Kind, owner.Name = one(owner.APIVersion), one(owner.Kind), one(owner.Name)
	}
}
