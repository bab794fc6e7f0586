// Package kubelet is a fake of the part of a kubelet that decides whether a pod gets the
// volume of a PVC. Its rules were observed on real kubelets, and a test compares today's
// rules with a real kubelet. It does not know how PVCs are read.
package kubelet

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/pvc"
)

// Kind is the behaviour of a kubelet.
type Kind int8

const (
	// Today refuses a terminating PVC only if the finalizer kubernetes.io/pvc-protection
	// is gone: since the spring of 2025.
	Today Kind = iota
	// Old refuses every terminating PVC: before that.
	Old
	// Careless refuses no PVC that exists. No real kubelet was seen to behave so: it shows
	// that record and strict need no kubelet.
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
