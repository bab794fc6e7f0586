package pvccache

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodUses is what the informer keeps of a pod: its metadata and the PVCs that it names.
// That is a third of the trimmed Pod type. It is never changed.
type PodUses struct {
	// ObjectMeta has no labels, no annotations, and of the owners the controller.
	metav1.ObjectMeta
	// Node is where the pod is bound, or empty.
	Node  string
	Phase corev1.PodPhase
	// volumes are those that are, or may be, PVCs.
	volumes []volume
}

// volume is a volume of a pod that is a PVC.
type volume struct {
	name string
	// claim is the name of the PVC, or empty for a volume source of a newer API.
	claim     string
	ephemeral bool
}

// UsesOf reduces a pod. A volume stays unless it is known not to be a PVC.
func UsesOf(pod *corev1.Pod) *PodUses {
	uses := &PodUses{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: one(pod.Namespace), Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		},
		Node: one(pod.Spec.NodeName), Phase: corev1.PodPhase(one(string(pod.Status.Phase))),
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		owner.APIVersion, owner.Kind, owner.Name = one(owner.APIVersion), one(owner.Kind), one(owner.Name)
		owner.BlockOwnerDeletion = nil
		uses.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	for i := range pod.Spec.Volumes {
		if v, ok := volumeOf(pod, &pod.Spec.Volumes[i]); ok {
			uses.volumes = append(uses.volumes, v)
		}
	}
	return uses
}

func volumeOf(pod *corev1.Pod, v *corev1.Volume) (volume, bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return volume{name: one(v.Name), claim: v.PersistentVolumeClaim.ClaimName}, true
	case v.Ephemeral != nil:
		return volume{name: one(v.Name), claim: pod.Name + "-" + v.Name, ephemeral: true}, true
	case v.VolumeSource == corev1.VolumeSource{}:
		return volume{name: one(v.Name)}, true
	}
	return volume{}, false
}

// Claims are the names of the PVCs that the pod uses. An empty one may be any PVC.
func (p *PodUses) Claims() []string {
	var names []string
	for _, v := range p.volumes {
		names = append(names, v.claim)
	}
	return names
}

// IsShutDown reports whether the kubelet is done with the pod, or was overruled.
func (p *PodUses) IsShutDown() bool {
	return p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
}

// Pod is the pod as far as it was kept.
func (p *PodUses) Pod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: p.ObjectMeta, Spec: corev1.PodSpec{NodeName: p.Node}, Status: corev1.PodStatus{Phase: p.Phase}}
	for _, v := range p.volumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v.whole())
	}
	return pod
}

func (v volume) whole() corev1.Volume {
	whole := corev1.Volume{Name: v.name}
	switch {
	case v.ephemeral:
		whole.Ephemeral = &corev1.EphemeralVolumeSource{}
	case v.claim != "":
		whole.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.claim}
	}
	return whole
}

// trimToUses is the informer's transform.
func trimToUses(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return UsesOf(pod), nil
	}
	return object, nil
}
