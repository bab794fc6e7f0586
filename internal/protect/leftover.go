package protect

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
)

// A name comes back, and its claim does not: deleted and made again at once, or scaled
// down and up again, a workload finds claims that were to go with what they belonged to.
// It waits for their end. Were they held for it, both would wait for ever.

// leftBehind tells whether a workload that makes the claim waits for the end of this one.
func (w World) leftBehind(c claimed) bool {
	return c.out == "" && w.GoneOwner != nil && slices.Contains(c.leftTo, w.GoneOwner.Kind)
}

// awaited tells whether any workload waits for the end of the claim.
func (w World) awaited(claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(w.Desire.of(claim.Name), w.leftBehind)
}

// Knows tells whether a pod or a workload is there, of a world that is that of the whole
// namespace.
func (w World) Knows(uid types.UID) bool {
	_, pod := w.Links[uid]
	_, workload := w.Desire.byUID[uid]
	return pod || workload
}

// scaledAway tells whether the workload was scaled to do without the claim, with the word
// that what is left over is deleted: also if it was scaled up again since.
func (w World) scaledAway(c claimed) bool {
	return c.discarded() || c.want.DeleteWhenScaled && w.leftBehind(c) && w.GoneOwner.Kind == identity.KindPod
}
