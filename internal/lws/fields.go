package lws

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LeftByCreate tells whether an entry of managed fields is what a POST, or an
// update, left to the manager of our applies. A later apply takes away only what
// applies hold, so such fields have to be turned into applied ones first. It is the
// one kind of entry that a decision reads.
func LeftByCreate(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == FieldOwner && entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == ""
}

func leftByCreate(object metav1.Object) bool {
	return slices.ContainsFunc(object.GetManagedFields(), LeftByCreate)
}
