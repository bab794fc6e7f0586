package interleave

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// apiServer is how somebody reaches the store: over the wire.
type apiServer struct {
	client.Client // what is not asked for
	world         *world
	from          string
	by            actor
	// pretends that there are no pods: to ask how far they are has failed.
	pretends bool
}

// beyond is a version that no watch reaches: pods have to be listed.
const beyond = "1000000"

func (a *apiServer) send(ctx context.Context, says string, writes bool, run func() error) error {
	return a.world.wire.send(ctx, &call{from: a.from, by: a.by, says: says, writes: writes, run: run})
}

func (a *apiServer) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *corev1.PersistentVolumeClaim:
		return a.getClaim(ctx, key.Name, into)
	case *metav1.PartialObjectMetadata:
		return apierrors.NewNotFound(claimResource, key.Name) // a namespace of no words, at any time: no step
	}
	return fmt.Errorf("nobody reads %T live", into)
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
	rules := a.world.rules
	says := "list pods"
	if list, probes := into.(*metav1.PartialObjectMetadataList); probes {
		says, list.ResourceVersion = "ask how far pods are", beyond
	} else if a.pretends {
		a.pretends = false
		return nil
	}
	err := a.send(ctx, says, false, func() error {
		now := a.world.read()
		switch into := into.(type) {
		case *metav1.PartialObjectMetadataList:
			into.ResourceVersion = now.ResourceVersion
			if rules.byCache {
				into.ResourceVersion = "1"
			}
			if rules.forgetsUnbound {
				into.ResourceVersion = beyond
			}
		case *corev1.PodList:
			now.DeepCopyInto(into)
		default:
			return fmt.Errorf("nobody lists %T live", into)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil && rules.errorsMeanNone {
		a.pretends = true
		return nil
	}
	return err
}

// preconditions takes those of a patch off it where a rule says so. Every patch has both.
func (a *apiServer) preconditions(patch map[string]any) error {
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata["uid"] == nil || metadata["resourceVersion"] == nil {
		return fmt.Errorf("a write without preconditions: %v", patch)
	}
	if a.world.rules.anyVersion {
		delete(metadata, "uid")
		delete(metadata, "resourceVersion")
	}
	return nil
}

func (a *apiServer) Patch(ctx context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	if object.GetObjectKind().GroupVersionKind().Kind == "Pod" {
		return a.patch(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: object.GetName()}}, data, func(map[string]any) {})
	}
	_, err = a.patchClaim(ctx, object.GetName(), data)
	return err
}

func (a *apiServer) patchClaim(ctx context.Context, name string, data []byte) (after *corev1.PersistentVolumeClaim, err error) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err = a.patch(ctx, claim, data, func(patch map[string]any) {
		if before := a.world.store.claims()[name]; before != nil && a.world.rules.ignoresP {
			leaveP(before, patch)
		}
	})
	if err != nil {
		return nil, err
	}
	return a.world.store.claims()[name], nil
}

// patch sends a merge patch. arrives may change it when it arrives.
func (a *apiServer) patch(ctx context.Context, object client.Object, data []byte, arrives func(map[string]any)) error {
	var patch map[string]any
	if err := json.Unmarshal(data, &patch); err != nil {
		return err
	}
	if err := a.preconditions(patch); err != nil {
		return err
	}
	return a.send(ctx, fmt.Sprintf("write %T %s: %s", object, object.GetName(), data), true, func() error {
		arrives(patch)
		changed, err := json.Marshal(patch)
		if err != nil {
			return err
		}
		return a.world.store.Patch(context.Background(), object, client.RawPatch(types.MergePatchType, changed))
	})
}

// leaveP has a patch of the finalizers leave the one of the built-in controller.
func leaveP(before *corev1.PersistentVolumeClaim, patch map[string]any) {
	metadata, _ := patch["metadata"].(map[string]any)
	if finalizers, ok := metadata["finalizers"].([]any); ok && slices.ContainsFunc(before.Finalizers, isP) {
		metadata["finalizers"] = append(finalizers, pvc.PodsFinalizer)
	}
}
