package lws

// Annotations of our own on StatefulSets. They stand in metadata, never in a pod
// template: a template change would restart pods.
const (
	// AppliedAnnotationKey holds a hash of the fields last applied, so that a
	// field that is no longer wanted is noticed and taken away.
	AppliedAnnotationKey = "lockstep.dev/applied"

	// NudgeAnnotationKey is changed to wake the StatefulSet controller from its
	// back-off once a name it was waiting for is free.
	NudgeAnnotationKey = "lockstep.dev/nudge"
)

// FieldOwner is the server-side apply manager of all fields that make up a set.
// It is the one that sets already running were applied with: under another name
// a field dropped from the template would stay for ever.
const FieldOwner = "lws"

// NudgeFieldOwner owns nothing but the nudge.
const NudgeFieldOwner = "lockstep-nudge"
