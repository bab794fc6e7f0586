package lws

import (
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"lockstep.dev/lockstep/internal/action"
)

// Annotations of our own on StatefulSets and leader pods. They stand in metadata, never in
// a pod template: a template change would restart pods.
const (
	// AppliedAnnotationKey holds a hash of the fields last applied, and the generation and UID
	// of the StatefulSet after that. It shows fields to remove, and changes by others.
	AppliedAnnotationKey = action.AppliedAnnotationKey

	// AsFoundAnnotationKey holds the revision key at which a template that another
	// implementation made is left as it was found.
	AsFoundAnnotationKey = "lockstep.dev/as-found"

	// NudgeAnnotationKey is changed to wake the StatefulSet controller from its
	// back-off once a name it was waiting for is free.
	NudgeAnnotationKey = "lockstep.dev/nudge"
)

// Server-side apply managers. An apply takes away what its manager owned and no
// longer names, so parts that are written on their own have managers of their own.
const (
	// FieldOwner owns all fields that make up an object of a set. It is the manager that sets already running were
	// applied with: under another name a field dropped from the template would stay for ever.
	FieldOwner = "lws"
	// adoptionFieldOwner owns the owner reference of an adopted object.
	adoptionFieldOwner = "lockstep-adoption"
	// nudgeFieldOwner owns the nudge.
	nudgeFieldOwner = "lockstep-nudge"
	// RetentionFieldOwner owns the retention policy of worker StatefulSets that others made.
	RetentionFieldOwner = "lockstep-retention"
	// ScaleFieldOwner owns how many workers a StatefulSet is to have, once another client had changed that.
	ScaleFieldOwner = "lockstep-scale"
	// TieFieldOwner owns the owner references of volume claims.
	TieFieldOwner = "lockstep-tie"
)

// LeftByCreate reports whether a create or an update left an entry of managed fields to the manager of our applies. An
// apply removes only fields that applies own: the others are turned into applied ones first.
func LeftByCreate(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == FieldOwner && entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == ""
}

// Contains reports whether every field that part sets has the same value in whole. Fields that
// part leaves out may have any value. Lists have the same length and match item by item.
func Contains(whole, part any) bool {
	have, unread := runtime.DefaultUnstructuredConverter.ToUnstructured(whole)
	want, unreadable := runtime.DefaultUnstructuredConverter.ToUnstructured(part)
	return unread == nil && unreadable == nil && Within(have, want)
}

// Within reports the same of objects that are decoded.
func Within(have, want any) bool {
	switch want := want.(type) {
	case nil:
		return true
	case map[string]any:
		have, ok := have.(map[string]any)
		for key, value := range want {
			if !Within(have[key], value) {
				return false
			}
		}
		return ok || len(want) == 0
	case []any:
		have, ok := have.([]any)
		return (ok || len(want) == 0) && slices.EqualFunc(have, want, Within)
	default:
		return reflect.DeepEqual(have, want)
	}
}

// Fingerprint is a short hash of all fields that object sets.
func Fingerprint(object any) string {
	encoded, _ := json.Marshal(object) // typed API objects always encode
	hash := fnv.New64a()
	_, _ = hash.Write(encoded)
	return hex.EncodeToString(hash.Sum(nil))
}
