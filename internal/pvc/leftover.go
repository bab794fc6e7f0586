package pvc

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
)

// A name comes back, and its claim does not: deleted and made again at once, or scaled
// down and up again, a workload finds claims that were to go with what they belonged to.
// It waits for their end. Were they held for it, both would wait for ever.

// leftBehind tells whether a workload that makes the claim waits for the end of this one.
func (w World) leftBehind(c claimed, claim *corev1.PersistentVolumeClaim) bool {
	if c.out != "" || w.GoneOwner == nil || !slices.Contains(c.leftTo, w.GoneOwner.Kind) {
		return false
	}
	return w.GoneOwner.Kind != identity.KindStatefulSet || isBuiltIn(w.GoneOwner) && w.isOfFormerLife(c, claim)
}

// isBuiltIn tells whether a StatefulSet is of the kind that leaders are made by: that waits
// for no claim of another group's kind of that name.
func isBuiltIn(statefulSet *identity.Ref) bool {
	return statefulSet.APIVersion == "" || strings.HasPrefix(statefulSet.APIVersion, "apps/")
}

// isOfFormerLife tells whether a claim of leaders, whose StatefulSet is gone, belonged to
// a life of the set that is over. Somebody may have deleted that StatefulSet under the set
// that lives, and the claim may be older than the set and its own: of a backup, kept by the
// life before, or taken over with the StatefulSet by a set that was deleted alone and made
// again. Whose the StatefulSet was is known to who saw it; else it is what was given away
// before the set was made. In doubt it is none: that set waits, and nothing is lost.
func (w World) isOfFormerLife(c claimed, claim *corev1.PersistentVolumeClaim) bool {
	switch {
	case slices.Contains(w.OwnerWasOf, c.want.Workload.UID):
		return false
	case len(w.OwnerWasOf) > 0:
		return !claim.CreationTimestamp.After(c.want.Since) // nobody can make a life that is over of this one
	}
	return !w.wasHeldFor(c, claim) && wasGivenBefore(claim, w.GoneOwner.UID, c.want.Since)
}

// wasHeldFor tells whether the claim says that it is held for this very life of the
// workload: who wrote that knew whose it is, and may know no more. Of several who hold it
// no word tells which life they are of, but there is one workload of a name at a time.
func (w World) wasHeldFor(c claimed, claim *corev1.PersistentVolumeClaim) bool {
	top, _ := w.Desire.top(c.want, w.Links)
	words, held := ParseWords(claim.Annotations[HoldersAnnotation]), workloadHolder(c, top)
	if !words.Until.IsZero() {
		return false
	}
	if claim.Annotations[DigestAnnotation] == digest([]Holder{held}) {
		return true
	}
	verified, err := time.Parse(time.RFC3339, claim.Annotations[VerifiedAnnotation])
	return err == nil && verified.After(c.want.Since) && slices.Contains(strings.Split(words.Names, ", "), held.Name)
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
