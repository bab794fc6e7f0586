package pvccache

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// object is a pointer to an object of one type.
type object interface {
	comparable
	metav1.Object
}

// Follow calls changed with every object of a type, and with every later change: before is nil
// for a new object, after for a deleted one. Two objects of one name are two calls.
func Follow[T interface {
	object
	client.Object
}](ctx context.Context, caches cache.Cache, of T, changed func(before, after T)) error {
	informer, err := caches.GetInformer(ctx, of, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(eventHandler(changed))
	return err
}

func eventHandler[T object](changed func(before, after T)) toolscache.ResourceEventHandlerFuncs {
	var none T
	tell := func(was, is any) {
		if last, ok := was.(toolscache.DeletedFinalStateUnknown); ok {
			was = last.Obj
		}
		before, _ := was.(T)
		after, _ := is.(T)
		if before != none && after != none && before.GetUID() != after.GetUID() {
			changed(before, none)
			before = none
		}
		if before != none || after != none {
			changed(before, after)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(is any) { tell(nil, is) },
		UpdateFunc: tell,
		DeleteFunc: func(was any) { tell(was, nil) },
	}
}

// FollowNamespaces calls concerned with every namespace, and with those that change or whose
// PVCs do. It calls ends with a namespace whose deletion begins.
func (h *Holds) FollowNamespaces(ctx context.Context, concerned func(name string), ends func(*metav1.PartialObjectMetadata)) error {
	err := Follow(ctx, h.Caches, &corev1.PersistentVolumeClaim{}, func(before, after *corev1.PersistentVolumeClaim) {
		concerned(oneOf(before, after).Namespace)
	})
	if err != nil {
		return err
	}
	return Follow(ctx, h.Caches, NewNamespace(""), func(before, after *metav1.PartialObjectMetadata) {
		concerned(oneOf(before, after).Name)
		if before != nil && after != nil && before.DeletionTimestamp == nil && after.DeletionTimestamp != nil {
			ends(after)
		}
	})
}

// oneOf returns an object as it is, or as it was.
func oneOf[T object](before, after T) T {
	var none T
	if after != none {
		return after
	}
	return before
}

// FollowDeleted calls gone with each deleted PVC in its last state.
func (h *Holds) FollowDeleted(ctx context.Context, gone func(*corev1.PersistentVolumeClaim)) error {
	return Follow(ctx, h.Caches, &corev1.PersistentVolumeClaim{}, func(before, after *corev1.PersistentVolumeClaim) {
		if after == nil {
			gone(before)
		}
	})
}

// FollowClaims calls concerned with every existing PVC, and with those that a later event may
// concern.
func (h *Holds) FollowClaims(ctx context.Context, concerned func(types.NamespacedName)) error {
	h.Workloads.Follow(func(w Wanting) { h.wantChanged(ctx, w, concerned) })
	if err := h.Pods.Follow(func(before, after *PodUses) { h.podChanged(ctx, before, after, concerned) }); err != nil {
		return err
	}
	err := Follow(ctx, h.Caches, NewNamespace(""), func(before, after *metav1.PartialObjectMetadata) {
		h.namespaceChanged(ctx, before, after, concerned)
	})
	if err != nil {
		return err
	}
	return Follow(ctx, h.Caches, &corev1.PersistentVolumeClaim{}, func(_, after *corev1.PersistentVolumeClaim) {
		if after != nil {
			concerned(client.ObjectKeyFromObject(after))
		}
	})
}

// namespaceChanged reports the PVCs of a namespace whose labels or deletion changed.
func (h *Holds) namespaceChanged(ctx context.Context, before, after *metav1.PartialObjectMetadata, concerned func(types.NamespacedName)) {
	if after == nil || before != nil && (before.DeletionTimestamp == nil) == (after.DeletionTimestamp == nil) &&
		maps.Equal(before.Labels, after.Labels) && pvc.Released(before) == pvc.Released(after) {
		return
	}
	h.list(ctx, concerned, client.InNamespace(after.Name))
}

// podChanged reports the PVCs of a pod when its use of them changes.
func (h *Holds) podChanged(ctx context.Context, before, after *PodUses, concerned func(types.NamespacedName)) {
	if before != nil && after != nil && before.Node == after.Node && before.Phase == after.Phase && pvc.IsShutDown(before) == pvc.IsShutDown(after) {
		return
	}
	pod := oneOf(before, after)
	for _, name := range pod.Claims() {
		if name == "" {
			h.list(ctx, concerned, client.InNamespace(pod.Namespace))
			continue
		}
		concerned(types.NamespacedName{Namespace: pod.Namespace, Name: name})
	}
}

// wantChanged reports the PVCs that a workload wants.
func (h *Holds) wantChanged(ctx context.Context, w Wanting, concerned func(types.NamespacedName)) {
	for _, key := range w.Keys {
		concerned(types.NamespacedName{Namespace: w.Namespace, Name: key})
		h.list(ctx, concerned, client.InNamespace(w.Namespace), client.MatchingFields{indexNumbered: key})
	}
}

// list reports cached PVCs. One that the cache does not show yet has its own event.
func (h *Holds) list(ctx context.Context, concerned func(types.NamespacedName), options ...client.ListOption) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := h.Caches.List(ctx, list, options...); err != nil {
		return
	}
	for i := range list.Items {
		concerned(client.ObjectKeyFromObject(&list.Items[i]))
	}
}
