package cluster

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// restored are the kinds of a backup of a whole namespace, in the order in which they are created
// again: pods come before their owners.
var restored = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
	corev1.SchemeGroupVersion.WithKind("Pod"),
	appsv1.SchemeGroupVersion.WithKind("ControllerRevision"),
	corev1.SchemeGroupVersion.WithKind("Service"),
	appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
	lwsv1.GroupVersion.WithKind("LeaderWorkerSet"),
}

// backUp reads all objects of kinds.
func (s *scene) backUp(kinds ...schema.GroupVersionKind) (all []*unstructured.Unstructured) {
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		s.Check("back up", s.Client.List(s.Context(), list, client.InNamespace(s.Namespace)))
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	return all
}

// restore creates objects again without what belongs to their former incarnation: UID, owners,
// status, and the node or volume that they were bound to.
func (s *scene) restore(backup []*unstructured.Unstructured) {
	for _, u := range backup {
		for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "ownerReferences", "managedFields", "generateName"} {
			unstructured.RemoveNestedField(u.Object, "metadata", field)
		}
		for _, key := range []string{"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller", "volume.kubernetes.io/selected-node"} {
			unstructured.RemoveNestedField(u.Object, "metadata", "annotations", key)
		}
		for _, field := range [][]string{{"status"}, {"spec", "nodeName"}, {"spec", "volumeName"}, {"spec", "clusterIP"}, {"spec", "clusterIPs"}} {
			if u.GetKind() != "Service" || field[0] == "status" { // a headless Service says so by its address
				unstructured.RemoveNestedField(u.Object, field...)
			}
		}
		s.Check("restore "+u.GetKind()+" "+u.GetName(), s.Client.Create(s.Context(), u))
	}
}

// A namespace is restored from a backup, whole or without what Lockstep makes itself. The set is whole
// again, and everything that was restored stays: pods and StatefulSets are adopted, PVCs are used.
func TestRestoreFromABackup(t *testing.T) {
	each(t, map[string][]schema.GroupVersionKind{
		"whole": restored, "sets and PVCs": {restored[0], restored[len(restored)-1]},
	}, func(s *scene, kinds []schema.GroupVersionKind) {
		set := s.settled(s.newSet("a", 2, 3, imageA, volumes(keepClaims, keepClaims)))
		backup := s.backUp(kinds...)
		s.Remove(set)
		s.Eventually("the namespace is empty", func() error {
			for _, u := range s.backUp(restored...) {
				if u.GetKind() == "PersistentVolumeClaim" && u.GetDeletionTimestamp() == nil {
					s.Remove(u)
				}
			}
			return drill.Lacking("objects", 0, len(s.backUp(restored...)))
		})
		s.restore(backup)
		s.Until("the set is there again", func() bool { again := s.Set("a"); return again != nil && again.UID != set.UID })
		s.awaitSettled(s.Set("a"))
		now := map[types.UID]bool{}
		for _, u := range s.backUp(restored...) {
			now[u.GetUID()] = true
		}
		for _, u := range backup {
			if !now[u.GetUID()] {
				s.Errorf("%s %s was restored, and replaced", u.GetKind(), u.GetName())
			}
		}
		same(s.T, "pods", 6, len(s.UIDs()))
	})
}
