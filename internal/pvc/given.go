package pvc

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

// GivenBy is the moment by which a claim was given to the StatefulSet that controls it, as
// it says itself. Who gave it away writes onto it for other reasons as well, such as to
// bind it to its volume, and is noted with the last of them.
func GivenBy(claim *corev1.PersistentVolumeClaim) (owner types.UID, at time.Time, known bool) {
	controller := metav1.GetControllerOfNoCopy(claim)
	if controller == nil || controller.Kind != string(identity.KindStatefulSet) {
		return "", time.Time{}, false
	}
	at, known = givenBy(claim, controller.UID)
	return controller.UID, at, known
}

// KnownGiven is the claim as one that says that it was given away by then. It is not
// changed itself.
func KnownGiven(claim *corev1.PersistentVolumeClaim, owner types.UID, at time.Time) *corev1.PersistentVolumeClaim {
	known := *claim
	known.ManagedFields = []metav1.ManagedFieldsEntry{{Time: new(metav1.NewTime(at)), FieldsV1: metav1.NewFieldsV1(`"` + string(owner) + `"`)}}
	return &known
}

func givenBy(claim *corev1.PersistentVolumeClaim, owner types.UID) (at time.Time, known bool) {
	for _, entry := range claim.ManagedFields {
		if !isGiving(entry, owner) {
			continue
		}
		if entry.Time == nil {
			return time.Time{}, false
		}
		if !known || at.Before(entry.Time.Time) {
			at = entry.Time.Time
		}
		known = true
	}
	return at, known
}

// clocksApart is by how much the clocks of API servers may differ: each notes its own time.
const clocksApart = time.Minute

// wasGivenBefore tells whether a claim was made, and given to an owner, before a moment,
// for certain.
func wasGivenBefore(claim *corev1.PersistentVolumeClaim, owner types.UID, moment time.Time) bool {
	at, known := givenBy(claim, owner)
	moment = moment.Add(-clocksApart)
	return known && at.Before(moment) && claim.CreationTimestamp.Time.Before(moment) // which nobody can forge
}
