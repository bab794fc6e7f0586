// Package kubelet stands in for the part of a kubelet that decides whether a pod
// gets the volume of a claim. It is a stand-in: the rules are those that kubelets
// were seen to follow, and a test puts the one of today to the real thing. It
// knows nothing of how claims are read.
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

// Admits tells why a new pod does not get the volume of a claim, read live.
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
