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

// Followers are called for events. They must not wait.
type Followers struct {
	// Claim gets every existing PVC that an event concerns.
	Claim func(types.NamespacedName)
	// Namespace gets every namespace whose PVCs changed.
	Namespace func(name string)
	// Gone gets a deleted PVC in its last state.
	Gone func(*corev1.PersistentVolumeClaim)
	// Ends gets a namespace that is being deleted now.
	Ends func(*metav1.PartialObjectMetadata)
}

// Follow calls f for events. It must be called before the informers run.
func (h *Holds) Follow(ctx context.Context, f Followers) error {
	h.workloads.Follow(func(w Wanting) { h.wantChanged(ctx, w, f.Claim) })
	if err := h.pods.Follow(func(before, after *PodUses) { h.podChanged(ctx, before, after, f.Claim) }); err != nil {
		return err
	}
	claims, err := h.caches.GetInformer(ctx, &corev1.PersistentVolumeClaim{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if _, err = claims.AddEventHandler(f.claims()); err != nil {
		return err
	}
	namespaces, err := h.caches.GetInformer(ctx, NewNamespace(""), cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = namespaces.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(is any) { h.namespaceChanged(ctx, nil, is, f) },
		UpdateFunc: func(was, is any) { h.namespaceChanged(ctx, was, is, f) },
	})
	return err
}

// claims returns the handler of events of PVCs.
func (f Followers) claims() toolscache.ResourceEventHandlerFuncs {
	tell := func(before, after *corev1.PersistentVolumeClaim) {
		is := after
		if is == nil {
			is = before
		}
		if before != nil && (after == nil || after.UID != before.UID) {
			f.Gone(before)
		}
		if after != nil {
			f.Claim(client.ObjectKeyFromObject(after))
		}
		f.Namespace(is.Namespace)
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(is any) {
			if claim := claimIn(is); claim != nil {
				tell(nil, claim)
			}
		},
		UpdateFunc: func(was, is any) {
			if before, after := claimIn(was), claimIn(is); before != nil && after != nil {
				tell(before, after)
			}
		},
		DeleteFunc: func(was any) {
			if claim := claimIn(was); claim != nil {
				tell(claim, nil)
			}
		},
	}
}

// claimIn returns the PVC that an event is about, or nil.
func claimIn(object any) *corev1.PersistentVolumeClaim {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	claim, _ := object.(*corev1.PersistentVolumeClaim)
	return claim
}

// namespaceChanged reports the PVCs of a namespace whose labels or deletion changed.
func (h *Holds) namespaceChanged(ctx context.Context, before, after any, f Followers) {
	was, known := before.(*metav1.PartialObjectMetadata)
	is, ok := after.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	f.Namespace(is.Name)
	if known && was.UID == is.UID && was.DeletionTimestamp == nil && is.DeletionTimestamp != nil {
		f.Ends(is)
	}
	if known && was.UID == is.UID && (was.DeletionTimestamp == nil) == (is.DeletionTimestamp == nil) &&
		maps.Equal(was.Labels, is.Labels) && pvc.Released(was) == pvc.Released(is) {
		return
	}
	h.list(ctx, f.Claim, client.InNamespace(is.Name))
}

// podChanged reports the PVCs of a pod when its use of them changes, and the PVCs that it owned
// when it is gone.
func (h *Holds) podChanged(ctx context.Context, before, after *PodUses, claim func(types.NamespacedName)) {
	if before != nil && after != nil && before.Node == after.Node && before.Phase == after.Phase && before.IsShutDown() == after.IsShutDown() {
		return
	}
	pod := after
	if pod == nil {
		pod = before
		h.list(ctx, claim, client.InNamespace(pod.Namespace), client.MatchingFields{indexPodOwned: string(pod.UID)})
	}
	for _, name := range pod.Claims() {
		if name == "" {
			h.list(ctx, claim, client.InNamespace(pod.Namespace))
			continue
		}
		claim(types.NamespacedName{Namespace: pod.Namespace, Name: name})
	}
}

// wantChanged reports the PVCs that a workload wants.
func (h *Holds) wantChanged(ctx context.Context, w Wanting, claim func(types.NamespacedName)) {
	for _, name := range w.Named {
		claim(types.NamespacedName{Namespace: w.Namespace, Name: name})
	}
	for _, prefix := range w.Prefixes {
		h.list(ctx, claim, client.InNamespace(w.Namespace), client.MatchingFields{indexNumbered: prefix})
	}
}

// list calls claim for cached PVCs. One that the cache does not show yet has its own event.
func (h *Holds) list(ctx context.Context, claim func(types.NamespacedName), options ...client.ListOption) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := h.caches.List(ctx, list, options...); err != nil {
		return
	}
	for i := range list.Items {
		claim(client.ObjectKeyFromObject(&list.Items[i]))
	}
}

// All returns the keys of all PVCs.
func (h *Holds) All(ctx context.Context) (keys []types.NamespacedName) {
	h.list(ctx, func(key types.NamespacedName) { keys = append(keys, key) })
	return keys
}

// Namespaces returns the keys of all namespaces.
func (h *Holds) Namespaces(ctx context.Context) (keys []types.NamespacedName) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := h.caches.List(ctx, list); err != nil {
		return nil
	}
	for i := range list.Items {
		keys = append(keys, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return keys
}
