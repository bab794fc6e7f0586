package pvc

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Birth is what an object gets when it is created, by those who can see neither
// its namespace nor the cluster's settings: which namespaces a birth is for is
// selected before.
type Birth struct {
	Finalizer string
	// modes are those that a claim may choose and be given it; anyMode tells that
	// claims which choose none are given it as well.
	modes   []Mode
	anyMode bool
	// ephemeral tells that claims that go with a pod are given it.
	ephemeral bool
}

// The births. The first is for namespaces that are protected, the second for those
// that are not, whose claims may choose to be.
var (
	BornProtected = Birth{Finalizer: BarrierFinalizer, modes: []Mode{Barrier, Hold, Strict}, anyMode: true}
	BornChoosing  = Birth{Finalizer: BarrierFinalizer, modes: []Mode{Barrier, Hold, Strict}}
	BornAlone     = Birth{Finalizer: PodsFinalizer, modes: []Mode{Off, Observe, Barrier, Hold, Strict}, anyMode: true, ephemeral: true}
	BornVolume    = Birth{Finalizer: VolumeFinalizer, modes: []Mode{Off, Observe, Barrier, Hold, Strict}, anyMode: true, ephemeral: true}
)

// Gives tells whether an object that is being created lacks the finalizer and is
// to get it. Its other finalizers are nobody's business here.
func (b Birth) Gives(object metav1.Object) bool {
	if slices.Contains(object.GetFinalizers(), b.Finalizer) || object.GetDeletionTimestamp() != nil {
		return false
	}
	asClaim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: object.GetName(), OwnerReferences: object.GetOwnerReferences()}}
	if !b.ephemeral && isEphemeral(asClaim) {
		return false
	}
	mode, chosen := ParseMode(object.GetAnnotations()[ModeKey])
	if !chosen {
		return b.anyMode
	}
	return slices.Contains(b.modes, mode)
}
