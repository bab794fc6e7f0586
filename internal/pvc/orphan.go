package pvc

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Disown is the patch that takes a claim from its owners: no garbage collector asks for
// it any more.
const Disown = `{"metadata":{"ownerReferences":null}}`

// HeldAndOwned names who holds a living claim that belongs to somebody, as its own words
// say, or is empty. Were what it belongs to gone, the garbage collector would delete it as
// soon as that is not refused any more. Of one that cools down nobody wants anything.
func HeldAndOwned(claim *corev1.PersistentVolumeClaim) string {
	words := ParseWords(claim.Annotations[HoldersAnnotation])
	if claim.DeletionTimestamp != nil || len(claim.OwnerReferences) == 0 || words.Names == Unverified || !words.Until.IsZero() {
		return ""
	}
	return said(words.Names)
}

// OwnersOf names what a claim belongs to, each with the UID that tells it from another of
// its name.
func OwnersOf(claim *corev1.PersistentVolumeClaim) string {
	names := make([]string, 0, len(claim.OwnerReferences))
	for _, owner := range claim.OwnerReferences {
		names = append(names, said(owner.Kind+"/"+owner.Name+" (UID "+string(owner.UID)+")"))
	}
	return strings.Join(names, ", ")
}
