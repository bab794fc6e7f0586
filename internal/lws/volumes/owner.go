package volumes

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// WhenScaledAnnotationKey on a PVC holds the UID of the set that deletes it when its group
// is scaled away.
const WhenScaledAnnotationKey = "lockstep.dev/when-scaled"

// owner is the ownerReference of PVCs that end with the set. The set is the controller: the
// StatefulSet controller leaves a PVC alone that has another controller, so the two never
// write against each other.
func owner(set *lwsv1.LeaderWorkerSet) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: lwsv1.GroupVersion.String(), Kind: string(identity.KindLeaderWorkerSet), Name: set.Name, UID: set.UID, Controller: ptr.To(true),
	}
}

// SetOwner returns the write that gives a PVC its ownerReferences and the annotation
// WhenScaled, or nil if there is nothing to write. Former are the UIDs of owners to remove
// beside the set; those that others gave the PVC stay. A PVC whose group is not in service
// loses owners and the annotation, and gets none.
func SetOwner(pvc *PVC, set *lwsv1.LeaderWorkerSet, inService bool, former []types.UID) *action.SetOwner {
	write := &action.SetOwner{Object: identity.RefOf(identity.KindPersistentVolumeClaim, pvc), Owners: pvc.OwnerReferences}
	keeps, owned := Keeps(set), metav1.IsControlledBy(pvc, set)
	if keeps || inService {
		write.Owners = slices.DeleteFunc(slices.Clone(pvc.OwnerReferences), func(o metav1.OwnerReference) bool {
			if o.UID == set.UID {
				return keeps || !owned
			}
			return slices.Contains(former, o.UID)
		})
	}
	if !keeps && inService && !owned {
		ref := identity.RefOf(identity.KindLeaderWorkerSet, set)
		write.To, write.Owners = &ref, append(write.Owners, owner(set))
	}
	marked := IsMarked(pvc, set)
	switch {
	case KeepsScaled(set) && marked:
		write.Annotations = map[string]string{WhenScaledAnnotationKey: ""}
	case !KeepsScaled(set) && inService && !marked:
		write.Annotations = map[string]string{WhenScaledAnnotationKey: string(set.UID)}
	case write.To == nil && len(write.Owners) == len(pvc.OwnerReferences):
		return nil
	}
	return write
}

// IsMarked reports whether a PVC was in service in this incarnation of the set while
// whenScaled was Delete. PVCs of a former set, and those kept before, are not.
func IsMarked(pvc *PVC, set *lwsv1.LeaderWorkerSet) bool {
	return pvc.Annotations[WhenScaledAnnotationKey] == string(set.UID)
}

// AreOwnedBy reports whether one of the PVCs has an owner with one of the UIDs.
func AreOwnedBy(pvcs []*PVC, uids ...types.UID) bool {
	return slices.ContainsFunc(pvcs, func(pvc *PVC) bool {
		return slices.ContainsFunc(pvc.OwnerReferences, func(o metav1.OwnerReference) bool { return slices.Contains(uids, o.UID) })
	})
}
