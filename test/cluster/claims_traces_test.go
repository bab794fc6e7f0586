package cluster

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const driver = "disk.example.com"

// diskClaim makes a claim of a volume that is attached to nodes, which chooses by a
// word of protection.
func (s *scene) diskClaim(name, key, word string) *corev1.PersistentVolumeClaim {
	s.Helper()
	claim := s.newClaim(name)
	claim.Annotations = map[string]string{"protection.lockstep.dev/" + key: word}
	claim.Spec.VolumeName = s.namespace + "-" + name
	bed.hasSet(s.namespace)
	s.create(claim)
	s.create(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: claim.Spec.VolumeName,
			}},
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: s.namespace, Name: name, UID: claim.UID},
		},
	})
	s.awaitDressed(name)
	return claim
}

// attach has a claim's volume attached to a node, as an attacher would tell.
func (s *scene) attach(claim *corev1.PersistentVolumeClaim) *storagev1.VolumeAttachment {
	s.Helper()
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: driver, NodeName: s.aNode(), Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &claim.Spec.VolumeName},
	}}
	s.create(a)
	return a
}

// complete ends a pod as its kubelet would, and says of its container that it has.
func (s *scene) complete(pod *corev1.Pod) {
	s.Helper()
	s.succeed(pod)
	s.check("complete pod "+pod.Name, s.client.Status().Patch(s.Context(), pod.DeepCopy(), client.RawPatch("application/merge-patch+json",
		[]byte(`{"status":{"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"terminated":{"exitCode":0}}}]}}`))))
}

// leftOnNodes shows what claims may choose: to go under pods that have completed, and
// to stay while their volume is on a node. Neither goes before that has left it.
func leftOnNodes(s *scene) {
	free, kept := s.diskClaim("free", "completed-pods", "free"), s.diskClaim("kept", "completed-pods", "free")
	plain := s.diskClaim("plain", "completed-pods", "hold")
	job := s.user("job", []string{free.Name, kept.Name, plain.Name})
	attached := s.attach(kept)
	s.awaitPhase(job, corev1.PodRunning)
	s.complete(job)
	for _, claim := range []*corev1.PersistentVolumeClaim{free, kept, plain} {
		s.remove(claim)
	}
	s.awaitWord(free, "DeletionPostponed", "30s after it completed")
	s.stays(free, kept, plain)
	s.awaitGone(free)
	s.stays(kept, plain)
	s.remove(attached)
	s.awaitGone(kept)
	s.stays(plain)

	held := s.diskClaim("held", "attached-volume", "hold")
	lost := s.user("lost", []string{held.Name})
	left := s.attach(held)
	s.force(lost)
	s.remove(held)
	s.awaitWord(held, "DeletionPostponed", "no pod uses the claim any more")
	s.eventually("the barrier alone is left", func() error {
		if have := s.finalizersOf(held.Name); !slices.Equal(have, []string{barrier}) {
			return fmt.Errorf("it has %v", have)
		}
		return nil
	})
	s.remove(left)
	s.awaitGone(held)
}

// force deletes a pod whose node does not answer, and waits until nobody sees it.
func (s *scene) force(pod *corev1.Pod) {
	s.Helper()
	s.remove(pod, client.GracePeriodSeconds(0))
	s.eventually("pod "+pod.Name+" is gone", func() error {
		if _, there := find[*corev1.Pod](s.recorder, pod.Name); there {
			return errors.New("it is there")
		}
		return nil
	})
}
