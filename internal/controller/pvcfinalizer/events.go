package pvcfinalizer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
)

func (c *Controller) claimChanged(before, after *corev1.PersistentVolumeClaim) {
	if after != nil {
		c.queue.Add(client.ObjectKeyFromObject(after))
		return
	}
	c.report.Gone(before.UID)
}

// namespaceChanged adds the PVCs of a namespace that has chosen another mode. A PVC may have
// been seen before its namespace.
func (c *Controller) namespaceChanged(before, after *metav1.PartialObjectMetadata) {
	if before == nil {
		before = &metav1.PartialObjectMetadata{}
	}
	if after != nil && before.Labels[pvc.ModeKey] != after.Labels[pvc.ModeKey] {
		c.addAll(after.Name, func(*corev1.PersistentVolumeClaim) bool { return true })
	}
}

// podChanged adds the PVCs that a pod may have released: of a pod that is gone, and of one that
// is bound to no node or shut down. A pod that is bound is reported.
func (c *Controller) podChanged(before, after *pvccache.PodUses) {
	switch {
	case after == nil:
		c.addUsed(before)
	case after.Node == "" || pvc.IsShutDown(after) || before == nil || before.Node == "":
		c.addUsed(after)
	}
}

// addUsed adds the PVCs that a pod uses and that wait for pods. One that the cache does not
// show yet comes as an event of its own. An unknown volume may be any PVC.
func (c *Controller) addUsed(pod *pvccache.PodUses) {
	for _, name := range pod.Claims() {
		if name == "" {
			c.addAll(pod.Namespace, waitsForPods)
			continue
		}
		key := types.NamespacedName{Namespace: pod.Namespace, Name: name}
		if claim, err := pvccache.PVC(context.Background(), c.Caches, key); err == nil && claim != nil && waitsForPods(claim) {
			c.queue.Add(key)
		}
	}
}

// addAll adds those PVCs of a namespace that match. A cache that runs returns no errors.
func (c *Controller) addAll(namespace string, match func(*corev1.PersistentVolumeClaim) bool) {
	claims, _ := pvccache.PVCsOf(context.Background(), c.Caches, namespace)
	for i := range claims {
		if match(&claims[i]) {
			c.queue.Add(client.ObjectKeyFromObject(&claims[i]))
		}
	}
}

// waitsForPods reports whether the end of a pod concerns a PVC: it is terminating, or its use
// record names pods.
func waitsForPods(claim *corev1.PersistentVolumeClaim) bool {
	return claim.DeletionTimestamp != nil || claim.Annotations[pvc.UsersAnnotation] != ""
}
