package pvccache

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodUses is what is kept of a pod for the sake of claims: a tenth of what the pod
// itself would take, of which there may be very many. It is never changed.
type PodUses struct {
	Namespace, Name, ResourceVersion string
	UID                              types.UID
	// Node is where it is bound, or empty.
	Node  string
	Phase corev1.PodPhase
	// Controller is who controls it, or nil.
	Controller *metav1.OwnerReference
	// Gates keep the scheduler from it.
	Gates []string

	deleted *metav1.Time
	grace   *int64
	// volumes are those that are, or may be, claims.
	volumes []claimVolume
}

// claimVolume is a volume of a pod that is a claim.
type claimVolume struct {
	volume string
	// claim is the name of the claim; empty for one that cannot be told.
	claim     string
	ephemeral bool
}

// usesOf reduces a pod. What is not known to be something else than a claim stays.
func usesOf(pod *corev1.Pod) *PodUses {
	uses := &PodUses{
		Namespace: one(pod.Namespace), Name: pod.Name, ResourceVersion: pod.ResourceVersion, UID: pod.UID,
		Node: one(pod.Spec.NodeName), Phase: corev1.PodPhase(one(string(pod.Status.Phase))),
		deleted: pod.DeletionTimestamp, grace: pod.DeletionGracePeriodSeconds,
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		uses.Controller = &metav1.OwnerReference{APIVersion: one(owner.APIVersion), Kind: one(owner.Kind), Name: one(owner.Name), UID: types.UID(one(string(owner.UID)))}
	}
	for _, gate := range pod.Spec.SchedulingGates {
		uses.Gates = append(uses.Gates, one(gate.Name))
	}
	for i := range pod.Spec.Volumes {
		if v, ok := claimVolumeOf(pod, &pod.Spec.Volumes[i]); ok {
			uses.volumes = append(uses.volumes, v)
		}
	}
	return uses
}

func claimVolumeOf(pod *corev1.Pod, volume *corev1.Volume) (claimVolume, bool) {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return claimVolume{volume: one(volume.Name), claim: volume.PersistentVolumeClaim.ClaimName}, true
	case volume.Ephemeral != nil:
		return claimVolume{volume: one(volume.Name), claim: pod.Name + "-" + volume.Name, ephemeral: true}, true
	case volume.VolumeSource == corev1.VolumeSource{}:
		return claimVolume{volume: one(volume.Name)}, true // of a newer API: it may well be one
	}
	return claimVolume{}, false
}

// Claims are the names of the claims that the pod uses. An empty one stands for
// what cannot be told.
func (p *PodUses) Claims() []string {
	var names []string
	for _, v := range p.volumes {
		names = append(names, v.claim)
	}
	return names
}

// IsShutDown tells whether the kubelet is done with the pod, or was overruled.
func (p *PodUses) IsShutDown() bool {
	return p.deleted != nil && p.grace != nil && *p.grace == 0
}

// Pod is the pod as far as it was kept.
func (p *PodUses) Pod() *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			DeletionTimestamp: p.deleted, DeletionGracePeriodSeconds: p.grace,
		},
		Spec:   corev1.PodSpec{NodeName: p.Node},
		Status: corev1.PodStatus{Phase: p.Phase},
	}
	if p.Controller != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*p.Controller}
		pod.OwnerReferences[0].Controller = new(true)
	}
	for _, gate := range p.Gates {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
	}
	for _, v := range p.volumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v.whole())
	}
	return pod
}

func (v claimVolume) whole() corev1.Volume {
	volume := corev1.Volume{Name: v.volume}
	switch {
	case v.ephemeral:
		volume.Ephemeral = &corev1.EphemeralVolumeSource{}
	case v.claim != "":
		volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.claim}
	}
	return volume
}

// trimToUses drops of a pod, on its way into memory, what usesOf would not keep.
func trimToUses(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return usesOf(pod).Pod(), nil
}
