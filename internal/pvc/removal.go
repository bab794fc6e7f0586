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
	// KeepChoices leaves what users wrote for the long run: modes and holds.
	KeepChoices bool
}

// Removed is what goes from one object.
type Removed struct {
	// Takes reports that finalizers go; Finalizers are those that stay.
	Takes      bool
	Finalizers []string
	// Annotations and Labels go.
	Annotations []string
	Labels      []string
}

// Empty reports that nothing of ours is on the object.
func (r Removed) Empty() bool {
	return !r.Takes && len(r.Annotations)+len(r.Labels) == 0
}

// Of is what goes from a PVC or a namespace. A terminating PVC keeps its finalizers and its use
// record: only a live read of pods removes them.
func (r Removal) Of(object metav1.Object) Removed {
	d := Removed{
		Finalizers:  object.GetFinalizers(),
		Annotations: r.keys(object.GetAnnotations()),
		Labels:      r.keys(object.GetLabels()),
	}
	if object.GetDeletionTimestamp() != nil {
		d.Annotations = slices.DeleteFunc(d.Annotations, func(key string) bool { return key == UsersAnnotation })
		return d
	}
	d.Finalizers = slices.DeleteFunc(slices.Clone(object.GetFinalizers()), r.isOurs)
	d.Takes = len(d.Finalizers) != len(object.GetFinalizers())
	return d
}

func (r Removal) isOurs(finalizer string) bool {
	return finalizer == BarrierFinalizer || (r.Alone && finalizer == PodsFinalizer)
}

// keys are our keys, whoever set them: a release would disarm the next installation.
func (r Removal) keys(on map[string]string) (ours []string) {
	for _, key := range slices.Sorted(maps.Keys(on)) {
		if strings.HasPrefix(key, Prefix) && (!r.KeepChoices || key != ModeKey && key != HoldAnnotation) {
			ours = append(ours, key)
		}
	}
	return ours
}

// Relies reports whether a terminating PVC waits for a finalizer that only we remove.
func (r Removal) Relies(pvc metav1.Object) bool {
	return pvc.GetDeletionTimestamp() != nil && slices.ContainsFunc(pvc.GetFinalizers(), r.isOurs)
}

// IsOurGate reports whether a pod waits for us to be scheduled.
func IsOurGate(name string) bool { return strings.HasPrefix(name, Prefix) }
