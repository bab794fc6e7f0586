package pvc

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Undress is how protection is taken back when it leaves a cluster.
type Undress struct {
	// Alone: P is ours, and nobody would take it after us.
	Alone bool
	// KeepChoices leaves what people wrote for the long run: modes and holds.
	KeepChoices bool
}

// Undressing is what has to be taken off one object.
type Undressing struct {
	// Takes reports that finalizers go; Finalizers are those that stay.
	Takes      bool
	Finalizers []string
	// Annotations and Labels go.
	Annotations []string
	Labels      []string
}

// Empty reports that nothing of ours is on the object.
func (u Undressing) Empty() bool {
	return !u.Takes && len(u.Annotations)+len(u.Labels) == 0
}

// Of is what has to be taken off a claim or a namespace. On its way out a claim
// keeps its finalizers, and the record of who may use it: they go by the protocol,
// or not at all.
func (u Undress) Of(object metav1.Object) Undressing {
	d := Undressing{
		Finalizers:  object.GetFinalizers(),
		Annotations: u.words(object.GetAnnotations()),
		Labels:      u.words(object.GetLabels()),
	}
	if object.GetDeletionTimestamp() != nil {
		d.Annotations = slices.DeleteFunc(d.Annotations, func(key string) bool { return key == UsersAnnotation })
		return d
	}
	d.Finalizers = slices.DeleteFunc(slices.Clone(object.GetFinalizers()), u.isOurs)
	d.Takes = len(d.Finalizers) != len(object.GetFinalizers())
	return d
}

func (u Undress) isOurs(finalizer string) bool {
	return finalizer == BarrierFinalizer || (u.Alone && finalizer == PodsFinalizer)
}

// words are the keys of ours, whoever set them: a release that was left behind
// would disarm the next installation.
func (u Undress) words(on map[string]string) []string {
	var ours []string
	for _, key := range slices.Sorted(maps.Keys(on)) {
		if strings.HasPrefix(key, Prefix) && (!u.KeepChoices || !slices.Contains(choices, key)) {
			ours = append(ours, key)
		}
	}
	return ours
}

// choices are what people write for as long as they mean it.
var choices = []string{ModeKey, HoldAnnotation}

// Relies reports whether a claim on its way out waits for a finalizer that only we
// take.
func (u Undress) Relies(claim metav1.Object) bool {
	return claim.GetDeletionTimestamp() != nil && slices.ContainsFunc(claim.GetFinalizers(), u.isOurs)
}

// IsOurGate reports whether a pod waits for us to be scheduled.
func IsOurGate(name string) bool { return strings.HasPrefix(name, Prefix) }
