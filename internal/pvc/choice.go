package pvc

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Choice is who holds a claim besides pods that may run. The zero value is what is
// built in: a pod holds as long as it is there, and nothing does after it.
type Choice struct {
	// CompletedFree: pods that have completed let go, once the volume has left their
	// nodes. Of P that is true only where it is ours.
	CompletedFree bool
	// AttachedHolds: B stays while the volume is on a node, whether or not a pod is
	// left that says so.
	AttachedHolds bool
}

// Words of a choice.
const (
	holds = "hold"
	frees = "free"
)

// ChoiceOf is what a claim chose, or else its namespace. A word that is none chooses
// nothing.
func ChoiceOf(claim *corev1.PersistentVolumeClaim, namespaceLabels map[string]string) Choice {
	word := func(key string) string {
		for _, word := range []string{claim.Annotations[key], namespaceLabels[key]} {
			if word == holds || word == frees {
				return word
			}
		}
		return ""
	}
	return Choice{CompletedFree: word(CompletedKey) == frees, AttachedHolds: word(AttachedKey) == holds}
}

// Completed tells whether a pod has run to its end. Its phase alone does not: the
// control plane says Failed of a pod whose node it cannot reach, and there it runs on.
// One of which the kubelet never said that a container has ended is not known to.
func Completed(pod *corev1.Pod) bool {
	if !isOver(pod.Status.Phase) {
		return false
	}
	ended := false
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		if slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil }) {
			return false
		}
		ended = ended || slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool { return s.State.Terminated != nil })
	}
	return ended
}

// allCompleted tells whether there are users, and all of them have completed. A claim
// that goes with its pod would be made again for it, and is left to that.
func allCompleted(users []Use) bool {
	return len(users) > 0 && !slices.ContainsFunc(users, func(u Use) bool { return !u.completed || u.ephemeral })
}
