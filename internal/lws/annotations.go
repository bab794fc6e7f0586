package lws

// Annotations of our own on StatefulSets and leader pods. They stand in metadata, never in
// a pod template: a template change would restart pods.
const (
	// AppliedAnnotationKey holds a hash of the fields last applied, and the generation and UID
	// of the StatefulSet after that. It shows fields to remove, and changes by others.
	AppliedAnnotationKey = "lockstep.dev/applied"

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
	// retentionFieldOwner owns the retention policy of worker StatefulSets that others made.
	retentionFieldOwner = "lockstep-retention"
	// scaleFieldOwner owns how many workers a StatefulSet is to have, once another client had changed that.
	scaleFieldOwner = "lockstep-scale"
	// TieFieldOwner owns the owner references of volume claims.
	TieFieldOwner = "lockstep-tie"
)
