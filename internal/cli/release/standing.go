package release

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// Standing is how an object stands to its release.
type Standing int8

// The standings.
const (
	// Held: a DELETE is refused, and a release lets it through.
	Held Standing = iota
	// HeldBack is a claim that is terminating while words still stand on it: they
	// keep its finalizers from being taken, and a release lets them go.
	HeldBack
	// Released already, by a token for this very incarnation.
	Released
	// Free: nothing refuses its deletion.
	Free
	// Leaving: it is terminating, and nothing that a release could lift keeps it.
	Leaving
)

// Judge tells how a claim or a namespace stands.
func Judge(object client.Object) (Standing, error) {
	switch o := object.(type) {
	case *corev1.PersistentVolumeClaim:
		return judge(o, o.Annotations[pvc.HoldersAnnotation] != "", true), nil
	case *corev1.Namespace:
		held := o.Annotations[pvc.HeldClaimsAnnotation]
		return judge(o, held != "" && held != "0", false), nil
	}
	return Free, fmt.Errorf("%T is not protected", object)
}

// judge puts what stands on an object in order. Words on a namespace keep no
// finalizer: one that is on its way out is past all refusal.
func judge(o client.Object, words, keepFinalizers bool) Standing {
	leaving := o.GetDeletionTimestamp() != nil
	switch {
	case leaving && (!words || !keepFinalizers):
		return Leaving
	case o.GetUID() != "" && o.GetAnnotations()[pvc.ReleaseAnnotation] == string(o.GetUID()):
		return Released
	case leaving:
		return HeldBack
	case words:
		return Held
	}
	return Free
}

// Same reports whether two looks at an object saw the same life in the same words:
// whoever consented to a release consented to these.
func Same(a, b client.Object) bool {
	if a.GetUID() != b.GetUID() || (a.GetDeletionTimestamp() == nil) != (b.GetDeletionTimestamp() == nil) {
		return false
	}
	for _, key := range []string{pvc.HoldersAnnotation, pvc.HeldClaimsAnnotation} {
		if a.GetAnnotations()[key] != b.GetAnnotations()[key] {
			return false
		}
	}
	return true
}
