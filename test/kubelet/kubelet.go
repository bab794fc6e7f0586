// Package kubelet stands in for the part of a kubelet that decides whether a pod
// gets the volume of a PVC. The rules are those that kubelets were seen to follow, and
// a test compares today's with the real thing. It does not know how PVCs are read.
package kubelet

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// Kind is which kubelet it is.
type Kind int8

const (
	// Today refuses a terminating claim only when kubernetes.io/pvc-protection is
	// gone: since the spring of 2025.
	Today Kind = iota
	// Old refuses every claim that is terminating: until then.
	Old
	// Careless refuses no claim that is there: one that cannot be trusted. No kubelet
	// was seen to be so.
	Careless
)

func (k Kind) String() string {
	return [...]string{"today's kubelet", "an old kubelet", "a careless kubelet"}[k]
}

var errDeleted = errors.New("PVC is being deleted")

// Admits returns why a new pod does not get the volume of a PVC, read live, or nil.
func (k Kind) Admits(claim *corev1.PersistentVolumeClaim) error {
	terminating := claim.DeletionTimestamp != nil
	protected := slices.Contains(claim.Finalizers, pvc.PodsFinalizer)
	switch {
	case terminating && k != Careless && (k == Old || !protected):
		return errDeleted
	case claim.Status.Phase != corev1.ClaimBound:
		return errors.New("PVC is not bound")
	case claim.Spec.VolumeName == "":
		return errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	return nil
}
