package pvccache

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// indexClaims finds gated pods by the PVCs that they use.
const indexClaims = "claims"

// Gated reads the pods with the scheduling gate of mode strict. It watches pods without a node.
type Gated struct{ cache cache.Cache }

// NewGated returns a Gated with its own cache, which must be started.
func NewGated(ctx context.Context, config *rest.Config, options cache.Options) (*Gated, error) {
	shared := true
	options.ByObject = map[client.Object]cache.ByObject{&corev1.Pod{}: {
		Field:                 fields.OneTermEqualSelector("spec.nodeName", ""),
		UnsafeDisableDeepCopy: &shared,
		Transform:             trimGated,
	}}
	pods, err := cache.New(config, options)
	if err != nil {
		return nil, fmt.Errorf("watch pods without a node: %w", err)
	}
	if err := pods.IndexField(ctx, &corev1.Pod{}, indexClaims, claimsOfGated); err != nil {
		return nil, fmt.Errorf("index pods without a node: %w", err)
	}
	return GatedIn(pods), nil
}

// GatedIn returns a Gated that reads an existing cache.
func GatedIn(pods cache.Cache) *Gated { return &Gated{pods} }

func claimsOfGated(object client.Object) []string {
	if pod, ok := object.(*corev1.Pod); ok && pvc.Gated(pod) {
		return pvc.ClaimsOf(pod)
	}
	return nil
}

// Cache returns the cache to start and to follow. Its objects must not be changed.
func (g *Gated) Cache() cache.Cache { return g.cache }

// Get returns a gated pod, or nil. It must not be changed.
func (g *Gated) Get(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := g.cache.Get(ctx, key, pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read pod %q: %w", key, err)
	case !pvc.Gated(pod):
		return nil, nil
	}
	return pod, nil
}

// Using returns the gated pods that use a PVC.
func (g *Gated) Using(ctx context.Context, claim types.NamespacedName) ([]types.NamespacedName, error) {
	return g.list(ctx, client.InNamespace(claim.Namespace), client.MatchingFields{indexClaims: claim.Name})
}

// In returns the gated pods of a namespace.
func (g *Gated) In(ctx context.Context, namespace string) ([]types.NamespacedName, error) {
	return g.list(ctx, client.InNamespace(namespace))
}

func (g *Gated) list(ctx context.Context, options ...client.ListOption) ([]types.NamespacedName, error) {
	pods := &corev1.PodList{}
	if err := g.cache.List(ctx, pods, options...); err != nil {
		return nil, fmt.Errorf("list gated pods: %w", err)
	}
	var keys []types.NamespacedName
	for i := range pods.Items {
		if pvc.Gated(&pods.Items[i]) {
			keys = append(keys, client.ObjectKeyFromObject(&pods.Items[i]))
		}
	}
	return keys, nil
}

// trimGated keeps what decides about the gate of a pod, and of a pod without it only the metadata.
func trimGated(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: one(pod.Namespace), Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp,
	}}
	if !pvc.Gated(pod) {
		return trimmed, nil
	}
	trimmed.Spec.SchedulingGates = slices.Clone(pod.Spec.SchedulingGates)
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil {
			trimmed.Spec.Volumes = append(trimmed.Spec.Volumes, corev1.Volume{
				Name: v.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: v.PersistentVolumeClaim},
			})
		}
	}
	return trimmed, nil
}
