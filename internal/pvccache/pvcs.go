package pvccache

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	return map[client.Object]cache.ByObject{&corev1.PersistentVolumeClaim{}: trimmed(), NewNamespace(""): trimmed()}
}

// VolumeCaches are the caches of PersistentVolumes, trimmed, for clusters where no built-in controller protects them.
func VolumeCaches() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&corev1.PersistentVolume{}: trimmed()}
}

func trimmed() cache.ByObject {
	return cache.ByObject{UnsafeDisableDeepCopy: new(true), Transform: trim}
}

// trim keeps of a PVC, a volume or a namespace its metadata with our labels and annotations, its
// phase, the name of the volume, and the condition Unused.
func trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.PersistentVolumeClaim:
		trimMetadata(&o.ObjectMeta)
		o.Spec = corev1.PersistentVolumeClaimSpec{VolumeName: o.Spec.VolumeName}
		other := func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type != corev1.PersistentVolumeClaimUnused
		}
		o.Status = corev1.PersistentVolumeClaimStatus{Phase: o.Status.Phase, Conditions: slices.DeleteFunc(o.Status.Conditions, other)}
	case *corev1.PersistentVolume:
		trimMetadata(&o.ObjectMeta)
		o.Spec, o.Status = corev1.PersistentVolumeSpec{}, corev1.PersistentVolumeStatus{Phase: o.Status.Phase}
	case *metav1.PartialObjectMetadata:
		trimMetadata(&o.ObjectMeta)
	}
	return object, nil
}

// trimMetadata keeps our labels and annotations, and drops managedFields.
func trimMetadata(meta *metav1.ObjectMeta) {
	foreign := func(key, _ string) bool { return !strings.HasPrefix(key, pvc.Prefix) }
	meta.ManagedFields = nil
	maps.DeleteFunc(meta.Annotations, foreign)
	maps.DeleteFunc(meta.Labels, foreign)
}

// PVC returns a PVC, or nil. One from a cache must not be changed.
func PVC(ctx context.Context, reader client.Reader, key types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
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

// PVCsOf returns the PVCs of a namespace. Those from a cache must not be changed.
func PVCsOf(ctx context.Context, reader client.Reader, namespace string) ([]corev1.PersistentVolumeClaim, error) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list PVCs of %q: %w", namespace, err)
	}
	return list.Items, nil
}

// NamespaceOf returns a namespace, empty if it does not exist. One from a cache may be late, or
// of another incarnation: it can add a hold, and must not end one.
func NamespaceOf(ctx context.Context, reader client.Reader, name string) (*metav1.PartialObjectMetadata, error) {
	namespace := NewNamespace(name)
	err := reader.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read namespace %q: %w", name, err)
	}
	return namespace, nil
}
