// Package volumes says which PersistentVolumeClaims belong to a LeaderWorkerSet, and what owns and deletes them.
//
// The ownerReferences of the PVCs of leaders and workers alike:
//
//	whenDeleted Delete     the set
//	whenDeleted Retain     none of ours
//
// No StatefulSet deletes PVCs: a worker StatefulSet goes with every restart of its group,
// and each of them says Retain. One that another implementation or version created says
// Delete. It is turned to Retain once its PVCs are owned by the set.
//
// The package is pure, and refuses to know when a PVC is written.
package volumes

import (
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// PVC is the metadata of a PersistentVolumeClaim.
type PVC = metav1.PartialObjectMetadata

// Named returns a PVC of which only the name is known.
func Named(namespace, name string) *PVC {
	return &PVC{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: string(identity.KindPersistentVolumeClaim)},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	}
}

const deletes = appsv1.DeletePersistentVolumeClaimRetentionPolicyType

// Keeps reports whether the PVCs of a set outlive it.
func Keeps(set *lwsv1.LeaderWorkerSet) bool {
	policy := set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy
	return policy == nil || policy.WhenDeleted != deletes
}

// KeepsScaled reports whether the PVCs of a group that is scaled away stay.
func KeepsScaled(set *lwsv1.LeaderWorkerSet) bool {
	policy := set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy
	return policy == nil || policy.WhenScaled != deletes
}

// AreDeletedBy reports whether a StatefulSet deletes PVCs, as those of another implementation or version do.
func AreDeletedBy(sts *appsv1.StatefulSet) bool {
	policy := sts.Spec.PersistentVolumeClaimRetentionPolicy
	return len(sts.Spec.VolumeClaimTemplates) > 0 && policy != nil &&
		(policy.WhenDeleted == deletes || policy.WhenScaled == deletes)
}

// IsOf reports whether a PVC has the set's label and a name of a PVC of a StatefulSet whose ordinals begin at start.
func IsOf(pvc *PVC, set *lwsv1.LeaderWorkerSet, statefulSet string, start int) bool {
	return workload.BearsName(pvc, set.Name) && Ordinal(pvc.Name, set, statefulSet) >= start
}

// Ordinal is the ordinal of the pod that a PVC is named after, if that is a pod of the given
// StatefulSet, else NoOrdinal.
func Ordinal(name string, set *lwsv1.LeaderWorkerSet, statefulSet string) int {
	stem, ordinal := identity.ParentAndOrdinal(name)
	template, named := strings.CutSuffix(stem, "-"+statefulSet)
	if !named || identity.LeaderName(stem, ordinal) != name || !slices.Contains(TemplateNames(set), template) {
		return identity.NoOrdinal
	}
	return ordinal
}

// GroupIndex is the index of the group that a PVC is named after, or NoOrdinal.
func GroupIndex(pvc *PVC, set *lwsv1.LeaderWorkerSet) int {
	if index := Ordinal(pvc.Name, set, set.Name); index != identity.NoOrdinal {
		return index
	}
	index, err := strconv.Atoi(pvc.Labels[lwsv1.GroupIndexLabelKey])
	if err != nil || Ordinal(pvc.Name, set, identity.LeaderName(set.Name, index)) == identity.NoOrdinal {
		return identity.NoOrdinal
	}
	return index
}

// Templates are the volumeClaimTemplates of a set.
func Templates(set *lwsv1.LeaderWorkerSet) []corev1.PersistentVolumeClaim {
	return set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates
}

// TemplateNames are the names of the volumeClaimTemplates of a set.
func TemplateNames(set *lwsv1.LeaderWorkerSet) (names []string) {
	for _, template := range Templates(set) {
		names = append(names, template.Name)
	}
	return names
}

// WithTemplates returns a set with other volumeClaimTemplates.
func WithTemplates(set *lwsv1.LeaderWorkerSet, templates []corev1.PersistentVolumeClaim) *lwsv1.LeaderWorkerSet {
	other := *set
	other.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = templates
	return &other
}

// AsCreated is a set with the volumeClaimTemplates of its leader StatefulSet if their names
// differ: PVCs are found by these names.
func AsCreated(set *lwsv1.LeaderWorkerSet, leaders *appsv1.StatefulSet) *lwsv1.LeaderWorkerSet {
	if leaders == nil || slices.EqualFunc(leaders.Spec.VolumeClaimTemplates, Templates(set), hasSameName) {
		return set
	}
	return WithTemplates(set, leaders.Spec.VolumeClaimTemplates)
}

func hasSameName(a, b corev1.PersistentVolumeClaim) bool { return a.Name == b.Name }

// WhenScaledAnnotationKey on a PVC holds the UID of the set that deletes it when its group is scaled away.
const WhenScaledAnnotationKey = "lockstep.dev/when-scaled"

// owner is the ownerReference of PVCs that end with the set. The set is the controller: the StatefulSet controller
// leaves a PVC alone that has another controller, so the two never write against each other.
func owner(set *lwsv1.LeaderWorkerSet) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: lwsv1.GroupVersion.String(), Kind: string(identity.KindLeaderWorkerSet), Name: set.Name, UID: set.UID, Controller: ptr.To(true),
	}
}

// SetOwner returns the write that gives a PVC its ownerReferences and the annotation WhenScaled, or nil if there is
// nothing to write. Former are the UIDs of owners to remove beside the set; those that others gave the PVC stay. A PVC
// whose group is not in service loses owners and the annotation, and gets none.
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
