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
		now := a.world.store.claims[name]
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

// patched is what patches of ours are made of.
type patched struct {
	Metadata struct {
		UID             types.UID
		ResourceVersion string
		Finalizers      *[]string
		Annotations     map[string]*string
	}
	Spec struct {
		SchedulingGates *[]corev1.PodSchedulingGate
	}
}

func (a *apiServer) parse(data []byte) (p patched, onto judged, err error) {
	if err := json.Unmarshal(data, &p); err != nil {
		return p, onto, err
	}
	onto = judged{p.Metadata.UID, p.Metadata.ResourceVersion}
	if onto.uid == "" || onto.version == "" {
		return p, onto, fmt.Errorf("a write without preconditions: %s", data)
	}
	if a.world.rules.anyVersion {
		onto = judged{}
	}
	return p, onto, nil
}

func (a *apiServer) Patch(ctx context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	if object.GetObjectKind().GroupVersionKind().Kind == "Pod" {
		return a.lift(ctx, object.GetName(), data)
	}
	_, err = a.patchClaim(ctx, object.GetName(), data)
	return err
}

func (a *apiServer) patchClaim(ctx context.Context, name string, data []byte) (after *corev1.PersistentVolumeClaim, err error) {
	p, onto, err := a.parse(data)
	if err != nil {
		return nil, err
	}
	err = a.send(ctx, fmt.Sprintf("write %s: %s", name, data), true, func() error {
		before := a.world.store.claims[name]
		err := a.world.store.writeClaim(name, onto, func(claim *corev1.PersistentVolumeClaim) { p.apply(claim, a.world.rules.ignoresP) })
		if err == nil {
			after = a.world.store.claims[name]
		}
		if err == nil && a.by == schedulersArrive && shrinks(before, after) {
			a.world.seen[takenBack]++
		}
		return err
	})
	return after, err
}

func shrinks(before, after *corev1.PersistentVolumeClaim) bool {
	return after != nil && len(after.Annotations[pvc.UsersAnnotation]) < len(before.Annotations[pvc.UsersAnnotation])
}

// lift writes the gates of a pod.
func (a *apiServer) lift(ctx context.Context, name string, data []byte) error {
	p, onto, err := a.parse(data)
	if err != nil || p.Spec.SchedulingGates == nil {
		return fmt.Errorf("nobody writes %s of a pod: %w", data, err)
	}
	return a.send(ctx, fmt.Sprintf("write pod %s: %s", name, data), true, func() error {
		return a.world.store.writePod(name, onto, func(pod *corev1.Pod) { pod.Spec.SchedulingGates = *p.Spec.SchedulingGates })
	})
}

func (p patched) apply(claim *corev1.PersistentVolumeClaim, leaveP bool) {
	if p.Metadata.Finalizers != nil {
		had := claim.Finalizers
		claim.Finalizers = *p.Metadata.Finalizers
		if leaveP && slices.ContainsFunc(had, isP) {
			claim.Finalizers = append(claim.Finalizers, pvc.PodsFinalizer)
		}
	}
	for key, value := range p.Metadata.Annotations {
		if value == nil {
			delete(claim.Annotations, key)
			continue
		}
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, key, *value)
	}
}
