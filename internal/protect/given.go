package protect

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/identity"
)

// When a claim was given to its owner is nowhere said. But the API server notes who wrote
// which fields, and when last: no later than that.

// Giving is what tells when a claim was given to the StatefulSet that controls it: of all
// that is noted, the times, and whom it was given to. Twice is as good as once.
func Giving(claim *corev1.PersistentVolumeClaim) []metav1.ManagedFieldsEntry {
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil || owner.Kind != string(identity.KindStatefulSet) {
		return nil
	}
	var giving []metav1.ManagedFieldsEntry
	for _, entry := range claim.ManagedFields {
		if isGiving(entry, owner.UID) {
			giving = append(giving, metav1.ManagedFieldsEntry{Time: entry.Time, FieldsV1: metav1.NewFieldsV1(`"` + string(owner.UID) + `"`)})
		}
	}
	return giving
}

func isGiving(entry metav1.ManagedFieldsEntry, owner types.UID) bool {
	return owner != "" && entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), string(owner))
}

// wasGivenBefore tells whether a claim was made, and given to an owner, before a moment,
// for certain.
func wasGivenBefore(claim *corev1.PersistentVolumeClaim, owner types.UID, moment time.Time) bool {
	known := false
	for _, entry := range claim.ManagedFields {
		if !isGiving(entry, owner) {
			continue
		}
		if entry.Time == nil || !entry.Time.Time.Before(moment) {
			return false
		}
		known = true
	}
	return known && claim.CreationTimestamp.Time.Before(moment) // which nobody can forge
}
