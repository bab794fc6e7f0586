package interleave

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apiServer is how one client reaches the store: over the wire.
type apiServer struct {
	client.Client // the methods that nothing calls
	world         *world
	from          string
	by            actor
}

func (a *apiServer) send(ctx context.Context, says string, writes bool, run func() error) error {
	return a.world.wire.send(ctx, &call{from: a.from, by: a.by, says: says, writes: writes, run: run})
}

func (a *apiServer) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *corev1.PersistentVolumeClaim:
		return a.getClaim(ctx, key.Name, into)
	case *metav1.PartialObjectMetadata:
		return apierrors.NewNotFound(claimResource, key.Name) // the namespace has no annotations
	}
	return fmt.Errorf("no client reads %T live", into)
}

func (a *apiServer) getClaim(ctx context.Context, name string, into *corev1.PersistentVolumeClaim) error {
	return a.send(ctx, "read claim "+name, false, func() error {
		now := a.world.store.claims()[name]
		if now == nil {
			return apierrors.NewNotFound(claimResource, name)
		}
		*into = *now.DeepCopy()
		return nil
	})
}

func (a *apiServer) List(ctx context.Context, into client.ObjectList, _ ...client.ListOption) error {
	says := "list pods"
	if _, probes := into.(*metav1.PartialObjectMetadataList); probes {
		says = "read the version of pods"
	}
	return a.send(ctx, says, false, func() error {
		now := a.world.store.podsNow()
		switch into := into.(type) {
		case *metav1.PartialObjectMetadataList:
			into.ResourceVersion = now.ResourceVersion
		case *corev1.PodList:
			now.DeepCopyInto(into)
		default:
			return fmt.Errorf("no client lists %T live", into)
		}
		return nil
	})
}

func (a *apiServer) Patch(ctx context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	if object.GetObjectKind().GroupVersionKind().Kind == "Pod" {
		return a.patch(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: object.GetName()}}, data)
	}
	_, err = a.patchClaim(ctx, object.GetName(), data)
	return err
}

func (a *apiServer) patchClaim(ctx context.Context, name string, data []byte) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := a.patch(ctx, claim, data); err != nil {
		return nil, err
	}
	return a.world.store.claims()[name], nil
}

// patch sends a merge patch. Every patch has both preconditions.
func (a *apiServer) patch(ctx context.Context, object client.Object, data []byte) error {
	var onto metav1.PartialObjectMetadata
	if err := json.Unmarshal(data, &onto); err != nil || onto.UID == "" || onto.ResourceVersion == "" {
		return fmt.Errorf("a write without preconditions: %s, %w", data, err)
	}
	return a.send(ctx, fmt.Sprintf("write %T %s: %s", object, object.GetName(), data), true, func() error {
		return a.world.store.Patch(context.Background(), object, client.RawPatch(types.MergePatchType, data))
	})
}
