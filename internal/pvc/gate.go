package pvc

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// GateView is one pod that waits under UseGate, and its claims, read live.
type GateView struct {
	Pod  *corev1.Pod
	Live Claims
	// NamespaceLabels are those of its namespace.
	NamespaceLabels map[string]string
	// NamespaceLive: they were read live after the pod was seen. Without that no gate is
	// lifted for want of protection.
	NamespaceLive bool
	Settings      Settings
}

// GateVerdict is what to do next for such a pod: write it on its claims, all of
// them, and only then lift the gate; or wait, if there is no gate to lift.
type GateVerdict struct {
	Writes []Recording
	Lift   Lifting
	// Waits is why the pod has to wait, or is empty.
	Waits action.Reason
	// AskNamespace: nothing is decided before the namespace was read live.
	AskNamespace bool
}

// Lifting takes UseGate from exactly the pod that was judged. It can be had from
// DecideGate alone; the zero value has no target and must not be carried out.
type Lifting struct {
	pod   identity.Ref
	stays []corev1.PodSchedulingGate
}

// Target is the incarnation and the version that was judged.
func (l Lifting) Target() identity.Ref { return l.pod }

// Gates are those that stay, in their order.
func (l Lifting) Gates() []corev1.PodSchedulingGate { return slices.Clone(l.stays) }

var _ action.Action = Lifting{}

// Why implements action.Action.
func (l Lifting) Why() action.Reason {
	return action.Reason{Code: "UseRecorded", Sentence: "the pod is written on its claims"}
}

// Telling implements action.Action: the scheduler will tell of the pod.
func (Lifting) Telling() action.Telling { return action.Telling{} }

// Verb implements action.Action.
func (Lifting) Verb() string { return "lift" }

// Gated tells whether a pod waits to be written on its claims. One that is on its
// way out waits for nothing.
func Gated(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Spec.SchedulingGates, isUseGate)
}

func isUseGate(gate corev1.PodSchedulingGate) bool { return gate.Name == UseGate }

// DecideGate judges one pod. Claims that go with the pod are left to the scheduler,
// and so are those that are not protected: nothing would be written on them.
func DecideGate(v GateView) GateVerdict {
	if !Gated(v.Pod) {
		return GateVerdict{}
	}
	protected := v.protected()
	if why := Unusable(protected, v.Live); why != "" {
		return GateVerdict{Waits: action.Reason{Code: waitCode(protected, v.Live), Sentence: "not scheduled before it is written on its claims: " + why}}
	}
	writes, err := Bind(protected, v.Live)
	if err != nil {
		return GateVerdict{Waits: action.Reason{Code: "UseNotRecorded", Sentence: "not scheduled before it is written on its claims: " + err.Error()}}
	}
	if !v.NamespaceLive && len(protected.Spec.Volumes) < recordable(v.Pod) {
		return GateVerdict{AskNamespace: true}
	}
	stays := slices.DeleteFunc(slices.Clone(v.Pod.Spec.SchedulingGates), isUseGate)
	return GateVerdict{Writes: writes, Lift: Lifting{pod: identity.RefOf(identity.KindPod, v.Pod), stays: stays}}
}

// recordable is how many volumes of a pod are claims that could have a use record.
func recordable(pod *corev1.Pod) (n int) {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].PersistentVolumeClaim != nil {
			n++
		}
	}
	return n
}

// protected is the pod with those volumes alone that are, or may become, claims
// with a use record. A claim that is missing may: it is what its namespace says.
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

// waitCode tells claims that come from claims that go.
func waitCode(pod *corev1.Pod, claims Claims) string {
	for _, name := range ClaimsOf(pod) {
		if claims[name] == nil {
			return "AwaitingClaim"
		}
	}
	return "ClaimUnusable"
}
