package pvc

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// DecideVolume is what is to be written to a volume, or nothing, where its
// protection is ours.
//
// A volume is in use while it is bound, and says so itself: a write onto the version
// judged needs no second look. Once terminating it is never bound anew.
func DecideVolume(volume *corev1.PersistentVolume) (action.SetFinalizers, bool) {
	has := slices.Contains(volume.Finalizers, VolumeFinalizer)
	a := action.SetFinalizers{Object: identity.RefOf(identity.KindPersistentVolume, volume)}
	switch {
	case volume.DeletionTimestamp == nil && !has:
		a.Finalizers = append(slices.Clone(volume.Finalizers), VolumeFinalizer)
		a.Because = action.Reason{Code: "Finalizers", Sentence: "a volume is not to go while it is bound"}
	case volume.DeletionTimestamp != nil && has && volume.Status.Phase != corev1.VolumeBound:
		a.Finalizers = slices.DeleteFunc(slices.Clone(volume.Finalizers), func(f string) bool { return f == VolumeFinalizer })
		a.Because = action.Reason{Code: "NotBound", Sentence: "the volume is to go, and is not bound"}
	default:
		return action.SetFinalizers{}, false
	}
	return a, true
}
