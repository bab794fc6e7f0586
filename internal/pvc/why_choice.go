package pvc

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// letsGo tells what a claim's choice makes of a pod that has completed.
func (c Case) letsGo(pod *corev1.Pod) string {
	switch {
	case !c.Choice.CompletedFree || pod == nil || !Completed(pod):
		return ""
	case slices.Contains(c.Claim.Finalizers, PodsFinalizer) && !c.Settings.Alone:
		return fmt.Sprintf(" (by %s it does not count for %s; for %s it does, unless Lockstep runs in place of the built-in controller)", CompletedKey, BarrierFinalizer, PodsFinalizer)
	}
	return fmt.Sprintf(", or until its volume has left node %s, %s after it was seen to have completed", pod.Spec.NodeName, CompletedGrace)
}

// heldByVolume tells whether a claim on its way out stays because its volume is
// attached, as it chose.
func (c Case) heldByVolume() bool {
	return c.terminating() && c.Choice.AttachedHolds && len(c.Attached) > 0 && slices.Contains(c.Claim.Finalizers, BarrierFinalizer)
}
