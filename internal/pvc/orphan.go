package pvc

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Disown is the patch that removes the owners of a PVC: no garbage collector deletes it then.
const Disown = `{"metadata":{"ownerReferences":null}}`

// HeldAndOwned names the holders of a living PVC with owners, by its annotation, or is empty.
// Without its owners, the garbage collector deletes it as soon as nothing refuses that. A cooling
// PVC has no holders.
func HeldAndOwned(pvc *corev1.PersistentVolumeClaim) string {
	holders := ParseHolders(pvc.Annotations[HoldersAnnotation])
	if pvc.DeletionTimestamp != nil || len(pvc.OwnerReferences) == 0 || holders.Names == Unverified || !holders.Until.IsZero() {
		return ""
	}
	return said(holders.Names)
}

// OwnersOf names the owners of a PVC, each with its UID.
func OwnersOf(pvc *corev1.PersistentVolumeClaim) string {
	names := make([]string, 0, len(pvc.OwnerReferences))
	for _, owner := range pvc.OwnerReferences {
		names = append(names, said(owner.Kind+"/"+owner.Name+" (UID "+string(owner.UID)+")"))
	}
	return strings.Join(names, ", ")
}
