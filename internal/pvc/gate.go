package pvc

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// GateView is one pod under UseGate, and its PVCs, read live.
type GateView struct {
	Pod  *corev1.Pod
	Live Claims
	// NamespaceLabels are those of its namespace.
	NamespaceLabels map[string]string
	// NamespaceLive reports that the labels were read live after the pod was seen. Only then
	// is a gate lifted because a PVC needs no record.
	NamespaceLive bool
	Settings      Settings
}

// GateVerdict records the pod on all of its PVCs and then lifts the gate, or waits.
type GateVerdict struct {
	Writes []Recording
	Lift   Lifting
	// Waits is why the pod waits, or is empty.
	Waits action.Reason
	// NeedsLive: decide again by a live read of the namespace.
	NeedsLive bool
}

// Lifting removes UseGate from the pod that was judged. Only DecideGate returns one with
// a target.
type Lifting struct {
	pod   identity.Ref
	stays []corev1.PodSchedulingGate
}

// Target is the incarnation and the version that was judged.
func (l Lifting) Target() identity.Ref { return l.pod }

// Gates are the gates that stay, in their order.
func (l Lifting) Gates() []corev1.PodSchedulingGate { return slices.Clone(l.stays) }

var _ action.Action = Lifting{}

// Why implements action.Action.
func (l Lifting) Why() action.Reason {
	return action.Reason{Code: "UseRecorded", Sentence: "the pod is recorded on its PVCs"}
}

// Telling implements action.Action: the scheduler reports on the pod.
func (Lifting) Telling() action.Telling { return action.Telling{} }

// Verb implements action.Action.
func (Lifting) Verb() string { return "lift" }

// Gated reports whether a pod waits under UseGate. A terminating pod does not.
func Gated(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Spec.SchedulingGates, isUseGate)
}

func isUseGate(gate corev1.PodSchedulingGate) bool { return gate.Name == UseGate }

// DecideGate judges one pod. Ephemeral and unprotected PVCs have no record, and are left to
// the scheduler.
func DecideGate(v GateView) GateVerdict {
	if !Gated(v.Pod) {
		return GateVerdict{}
	}
	protected := v.protected()
	if why := Unusable(protected, v.Live); why != "" {
		return GateVerdict{Waits: action.Reason{Code: waitCode(protected, v.Live), Sentence: "not scheduled before it is recorded on its PVCs: " + why}}
	}
	writes, err := Bind(protected, v.Live)
	if err != nil {
		return GateVerdict{Waits: action.Reason{Code: "UseNotRecorded", Sentence: "not scheduled before it is recorded on its PVCs: " + err.Error()}}
	}
	if !v.NamespaceLive && len(protected.Spec.Volumes) < recordable(v.Pod) {
		return GateVerdict{NeedsLive: true}
	}
	stays := slices.DeleteFunc(slices.Clone(v.Pod.Spec.SchedulingGates), isUseGate)
	return GateVerdict{Writes: writes, Lift: Lifting{pod: identity.RefOf(identity.KindPod, v.Pod), stays: stays}}
}

// recordable counts the volumes whose PVC may have a use record.
func recordable(pod *corev1.Pod) (n int) {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].PersistentVolumeClaim != nil {
			n++
		}
	}
	return n
}

// protected is the pod with only the volumes whose PVC has, or will have, a use record. The
// labels of the namespace decide for a missing PVC.
func (v GateView) protected() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: v.Pod.ObjectMeta}
	for _, volume := range v.Pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		claim := v.Live[volume.PersistentVolumeClaim.ClaimName]
		if claim == nil {
			claim = &corev1.PersistentVolumeClaim{}
			claim.Namespace = v.Pod.Namespace
		}
		if v.Settings.Records(claim, v.NamespaceLabels) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
		}
	}
	return pod
}

// waitCode distinguishes a missing PVC from a terminating one.
func waitCode(pod *corev1.Pod, claims Claims) string {
	for _, name := range ClaimsOf(pod) {
		if claims[name] == nil {
			return "AwaitingClaim"
		}
	}
	return "ClaimUnusable"
}
