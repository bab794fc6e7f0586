package pvc

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Removal takes protection off objects when Lockstep is uninstalled.
type Removal struct {
	// Alone: the finalizer for pods is ours.
	Alone bool
}

// Strip removes what is ours from a PVC or a namespace in memory, and reports whether there was any. A terminating PVC
// keeps its finalizers and its use record: only a live read of pods removes them.
func (r Removal) Strip(object metav1.Object) bool {
	isTerminating := object.GetDeletionTimestamp() != nil
	goes := func(key, _ string) bool {
		return strings.HasPrefix(key, Prefix) && (!isTerminating || key != UsersAnnotation)
	}
	size := func() int {
		return len(object.GetAnnotations()) + len(object.GetLabels()) + len(object.GetFinalizers())
	}
	before := size()
	maps.DeleteFunc(object.GetAnnotations(), goes)
	maps.DeleteFunc(object.GetLabels(), goes)
	if !isTerminating {
		object.SetFinalizers(slices.DeleteFunc(slices.Clone(object.GetFinalizers()), r.isOurs))
	}
	return size() < before
}

func (r Removal) isOurs(finalizer string) bool {
	return finalizer == BarrierFinalizer || (r.Alone && finalizer == PodsFinalizer)
}

// Relies reports whether a terminating PVC waits for a finalizer that only we remove.
func (r Removal) Relies(pvc metav1.Object) bool {
	return pvc.GetDeletionTimestamp() != nil && slices.ContainsFunc(pvc.GetFinalizers(), r.isOurs)
}

// IsOurGate reports whether a pod waits for us to be scheduled.
func IsOurGate(name string) bool { return strings.HasPrefix(name, Prefix) }
