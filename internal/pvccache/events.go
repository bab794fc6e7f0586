package pvccache

import (
	"cmp"
	"context"
	"errors"
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

// Concerned is called with the name of a PVC that an event may concern. It may not exist.
type Concerned func(types.NamespacedName)

// FollowPVCs calls concerned with every PVC, and with those that a later event of a PVC, of a
// namespace or of a pod may concern.
func FollowPVCs(ctx context.Context, caches cache.Cache, pods *Pods, concerned Concerned) error {
	list := func(options ...client.ListOption) { listed(ctx, caches, concerned, options...) }
	return errors.Join(
		pods.Follow(func(before, after *PodUses) { podChanged(before, after, concerned, list) }),
		Follow(ctx, caches, NewNamespace(""), func(before, after *metav1.PartialObjectMetadata) {
			if namespaceChanged(before, after) {
				list(client.InNamespace(after.Name))
			}
		}),
		Follow(ctx, caches, &corev1.PersistentVolumeClaim{}, func(before, after *corev1.PersistentVolumeClaim) {
			concerned(client.ObjectKeyFromObject(cmp.Or(after, before)))
		}),
	)
}

// FollowPVCs also follows what workloads want.
func (h *Holds) FollowPVCs(ctx context.Context, concerned Concerned) error {
	h.Workloads.Follow(func(key types.NamespacedName) {
		concerned(key)
		listed(ctx, h.Caches, concerned, client.InNamespace(key.Namespace), client.MatchingFields{indexNumbered: key.Name})
	})
	return FollowPVCs(ctx, h.Caches, h.Pods, concerned)
}

// namespaceChanged reports whether the labels of a namespace, its deletion or its release changed.
func namespaceChanged(before, after *metav1.PartialObjectMetadata) bool {
	return after != nil && (before == nil || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		!maps.Equal(before.Labels, after.Labels) || pvc.Released(before) != pvc.Released(after))
}

// podChanged reports the PVCs of a pod when its use of them changes. An empty name is a volume of
// a newer API, which may be any PVC.
func podChanged(before, after *PodUses, concerned Concerned, list func(...client.ListOption)) {
	if before != nil && after != nil && before.Node == after.Node && before.Phase == after.Phase && pvc.IsShutDown(before) == pvc.IsShutDown(after) {
		return
	}
	pod := cmp.Or(after, before)
	for _, name := range pod.Claims() {
		if name == "" {
			list(client.InNamespace(pod.Namespace))
			continue
		}
		concerned(types.NamespacedName{Namespace: pod.Namespace, Name: name})
	}
}

// listed reports cached PVCs. One that the cache does not show yet has its own event.
func listed(ctx context.Context, caches cache.Cache, concerned Concerned, options ...client.ListOption) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := caches.List(ctx, list, options...); err != nil {
		return
	}
	for i := range list.Items {
		concerned(client.ObjectKeyFromObject(&list.Items[i]))
	}
}
