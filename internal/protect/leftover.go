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
// A StatefulSet that is gone may be one that somebody deleted under a set that lives: its
// claims are of a former life for certain only where they were given to it before the set
// was made. A claim may be older than that, and the set's own: of a backup, or kept by the
// life before. In doubt they are held: that set waits, and nothing is lost.
func (w World) leftBehind(c claimed, claim *corev1.PersistentVolumeClaim) bool {
	if c.out != "" || w.GoneOwner == nil || !slices.Contains(c.leftTo, w.GoneOwner.Kind) {
		return false
	}
	return w.GoneOwner.Kind != identity.KindStatefulSet || wasGivenBefore(claim, w.GoneOwner.UID, c.want.Since)
}

// awaited tells whether any workload waits for the end of the claim.
func (w World) awaited(claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(w.Desire.of(claim.Name), func(c claimed) bool { return w.leftBehind(c, claim) })
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
func (w World) scaledAway(c claimed, claim *corev1.PersistentVolumeClaim) bool {
	return c.discarded() || c.want.DeleteWhenScaled && w.leftBehind(c, claim) && w.GoneOwner.Kind == identity.KindPod
}
