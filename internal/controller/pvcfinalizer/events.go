package pvcfinalizer

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
)

// claimEvents has claims looked at that come, and whose metadata changes.
func (c *Controller) claimEvents() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
				c.backlog.add(client.ObjectKeyFromObject(claim))
			}
		},
		UpdateFunc: func(before, after any) {
			was, ok := before.(*corev1.PersistentVolumeClaim)
			is, ok2 := after.(*corev1.PersistentVolumeClaim)
			if ok && ok2 && concerns(was, is) {
				c.backlog.add(client.ObjectKeyFromObject(is))
			}
			if ok && ok2 && was.UID != is.UID {
				c.narrate.Gone(was.UID)
				c.narrate.Went(was)
			}
		},
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
				c.claimGone(claim)
			}
		},
	}
}

func (c *Controller) claimGone(claim *corev1.PersistentVolumeClaim) {
	key := client.ObjectKeyFromObject(claim)
	c.backlog.succeeded(key)
	c.forget(key, claim.UID)
	c.narrate.Went(claim)
}

// forget has nothing remembered of a claim that is not there any more.
func (c *Controller) forget(key types.NamespacedName, uid types.UID) {
	c.narrate.Gone(uid)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.doubted, key)
}

// concerns reports whether an update changed what finalizers are decided by.
func concerns(was, is *corev1.PersistentVolumeClaim) bool {
	return was.UID != is.UID || (was.DeletionTimestamp == nil) != (is.DeletionTimestamp == nil) ||
		!slices.Equal(was.Finalizers, is.Finalizers) || !maps.Equal(was.Annotations, is.Annotations) ||
		metav1.GetControllerOfNoCopy(was) == nil != (metav1.GetControllerOfNoCopy(is) == nil)
}

// modeOf is the mode that a namespace chose for its PVCs, or empty.
func modeOf(object any) string {
	if namespace, ok := object.(*metav1.PartialObjectMetadata); ok {
		return namespace.Labels[pvc.ModeKey]
	}
	return ""
}

// namespaceEvents has the claims of a namespace looked at that chooses otherwise.
func (c *Controller) namespaceEvents(ctx context.Context) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			// A claim may have been seen before its namespace was.
			if modeOf(object) != "" {
				c.addAllOf(ctx, object)
			}
		},
		UpdateFunc: func(before, after any) {
			if modeOf(before) != modeOf(after) {
				c.addAllOf(ctx, after)
			}
		},
	}
}

func (c *Controller) addAllOf(ctx context.Context, object any) {
	namespace, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	claims, err := c.claims.In(ctx, namespace.Name)
	if err != nil {
		return // a cache that runs has no errors
	}
	for i := range claims {
		c.backlog.add(client.ObjectKeyFromObject(&claims[i]))
	}
}

// podChanged has the claims looked at that a pod may have let go of: of one that
// went, of one that gave its name to another, and of one that is bound to no node
// or of which nothing runs any more. One that has just come to a node holds claims
// of which that was not known when their deletion was seen.
func (c *Controller) podChanged(before, after *pvccache.PodUses) {
	switch {
	case after == nil:
		c.addUsed(before)
	case after.Node == "" || after.IsShutDown() || before == nil || before.Node == "":
		c.addUsed(after)
	}
}

// addUsed adds the claims that a pod uses and that a pod's going concerns: those on
// their way out, and those that name pods. What the cache does not show yet will
// come as an event of its own.
func (c *Controller) addUsed(pod *pvccache.PodUses) {
	for _, name := range pod.Claims() {
		if name == "" {
			c.addTerminating(pod.Namespace)
			continue
		}
		key := types.NamespacedName{Namespace: pod.Namespace, Name: name}
		claim, err := c.claims.Get(context.Background(), key)
		if err == nil && claim != nil && waitsForPods(claim) {
			c.backlog.add(key)
		}
	}
}

// addTerminating adds every claim of a namespace that waits for pods: nobody can
// tell which of them a pod had used.
func (c *Controller) addTerminating(namespace string) {
	claims, err := c.claims.In(context.Background(), namespace)
	if err != nil {
		return
	}
	for i := range claims {
		if waitsForPods(&claims[i]) {
			c.backlog.add(client.ObjectKeyFromObject(&claims[i]))
		}
	}
}

func waitsForPods(claim *corev1.PersistentVolumeClaim) bool {
	return claim.DeletionTimestamp != nil || claim.Annotations[pvc.UsersAnnotation] != ""
}
