package pvc

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// UnusedVerdict is what to do about the condition Unused of a claim.
type UnusedVerdict struct {
	// Write is the condition that the claim is to bear, or nil to leave it.
	Write *action.Condition
	// Awaits says that the claim lacks a finalizer that it is about to get: were both
	// written at once, one of the writes would find the claim changed.
	Awaits bool
}

// DecideUnused tells whether a claim is to say that nobody uses it, in the words of
// the controller that is built in, in whose place it is said.
//
// It is another question than whether the claim may go: a pod that was never bound
// is a user here, and one that is over is none. So a claim may say that it is unused
// and stay. Nothing is ever said on a claim that is on its way out: its release must
// cost no write more. One that is not bound yet is written by whoever binds it.
func DecideUnused(v View, now time.Time) UnusedVerdict {
	if v.Claim.DeletionTimestamp != nil || v.Claim.Status.Phase != corev1.ClaimBound {
		return UnusedVerdict{}
	}
	is := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue,
		Reason: "NoPodsUsingPVC", Message: "No pods are currently referencing this PVC",
	}
	if v.Pods.wanted(v.Claim) {
		is.Status, is.Reason, is.Message = corev1.ConditionFalse, "PodUsingPVC", "A pod is currently referencing this PVC"
	}
	if saysUnused(v.Claim) == is.Status {
		return UnusedVerdict{}
	}
	if v.dress().Step != Leave {
		return UnusedVerdict{Awaits: true}
	}
	is.LastTransitionTime = metav1.NewTime(now)
	return UnusedVerdict{Write: &action.Condition{
		Claim: identity.RefOf(identity.KindPersistentVolumeClaim, v.Claim), Is: is,
		Because: action.Reason{Code: is.Reason, Sentence: is.Message},
	}}
}

// saysUnused is the status of the condition that stands on a claim, or "".
func saysUnused(claim *corev1.PersistentVolumeClaim) corev1.ConditionStatus {
	for i := range claim.Status.Conditions {
		if c := &claim.Status.Conditions[i]; c.Type == corev1.PersistentVolumeClaimUnused {
			return c.Status
		}
	}
	return ""
}

// wanted tells whether a pod names the claim, bound or not, of which anything may
// still run.
func (x *Index) wanted(claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(x.Uses(claim), func(u Use) bool { return !u.over })
}

// NothingRuns tells whether nothing of a pod runs any more, or ever will.
func NothingRuns(pod *corev1.Pod) bool {
	if isOver(pod.Status.Phase) {
		return true
	}
	runs := func(s corev1.ContainerStatus) bool { return s.State.Running != nil }
	return pod.DeletionTimestamp != nil && !slices.ContainsFunc(pod.Status.ContainerStatuses, runs)
}
