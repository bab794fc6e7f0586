package pvc

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
)

// Use is one pod's use of one PVC.
type Use struct {
	Pod identity.Ref
	// Node is empty if the pod is not bound: then it does not hold.
	Node  string
	Phase corev1.PodPhase
	// Path is the field that names the PVC.
	Path string
	// ephemeral uses count only for the PVC that the pod itself controls.
	ephemeral bool
	shutDown  bool
}

// holds reports whether the use keeps the finalizers of the PVC, in any phase: the volume may
// be mounted as long as the pod object exists.
func (u Use) holds(pvc *corev1.PersistentVolumeClaim) bool {
	return u.Node != "" && u.of(pvc) && (!u.ephemeral || !u.shutDown)
}

// of reports whether the use is of this PVC. An ephemeral volume uses the PVC that its pod
// controls by UID, not another one of the name.
func (u Use) of(pvc *corev1.PersistentVolumeClaim) bool {
	if !u.ephemeral {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(pvc)
	return owner != nil && owner.UID != "" && owner.UID == u.Pod.UID
}

// Index is the pods of one namespace by the PVCs that they name.
type Index struct {
	byClaim map[string][]Use
	// opaque are volumes of an unknown kind: they may use any PVC.
	opaque []Use
	pods   map[types.UID]bool
}

// NewIndex returns an empty index.
func NewIndex() *Index {
	return &Index{byClaim: map[string][]Use{}, pods: map[types.UID]bool{}}
}

// See adds a pod.
func (x *Index) See(pod *corev1.Pod) {
	x.pods[pod.UID] = true
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		use := Use{Pod: identity.RefOf(identity.KindPod, pod), Node: pod.Spec.NodeName, Phase: pod.Status.Phase, shutDown: IsShutDown(pod)}
		switch {
		case volume.PersistentVolumeClaim != nil:
			use.Path = fmt.Sprintf("spec.volumes[%s].persistentVolumeClaim.claimName", volume.Name)
		case volume.Ephemeral != nil:
			use.Path, use.ephemeral = fmt.Sprintf("spec.volumes[%s].ephemeral", volume.Name), true
		case volume.VolumeSource == corev1.VolumeSource{}:
			// A volume source of a newer API may be a PVC.
			use.Path = fmt.Sprintf("spec.volumes[%s], of a kind unknown here", volume.Name)
			x.opaque = append(x.opaque, use)
		}
		if name := ClaimOf(pod, volume); name != "" {
			x.byClaim[name] = append(x.byClaim[name], use)
		}
	}
}

// Uses are all uses of a PVC, of unbound pods as well. Volumes of an unknown kind count only if the pod is bound.
func (x *Index) Uses(pvc *corev1.PersistentVolumeClaim) []Use {
	isOther := func(use Use) bool { return !use.of(pvc) }
	isUnbound := func(use Use) bool { return use.Node == "" }
	return append(slices.DeleteFunc(slices.Clone(x.byClaim[pvc.Name]), isOther), slices.DeleteFunc(slices.Clone(x.opaque), isUnbound)...)
}

// Holding are the uses that keep the finalizers of a PVC.
func (x *Index) Holding(pvc *corev1.PersistentVolumeClaim) []Use {
	return slices.DeleteFunc(x.Uses(pvc), func(use Use) bool { return !use.holds(pvc) })
}

// IsShutDown reports whether the kubelet is done with a pod, or was overruled: it was deleted with
// a grace period of zero.
func IsShutDown(pod metav1.Object) bool {
	grace := pod.GetDeletionGracePeriodSeconds()
	return pod.GetDeletionTimestamp() != nil && grace != nil && *grace == 0
}
