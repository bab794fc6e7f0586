package admission

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/backoff"
)

// readBackoff tells an annotation that is absent from an empty one.
func readBackoff(set *lwsv1.LeaderWorkerSet) any {
	value, given := set.Annotations[backoff.AnnotationKey]
	return []any{value, given}
}

// checkBackoff refuses a back-off that cannot be read: it would be as if it were
// not there.
func checkBackoff(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	value, given := set.Annotations[backoff.AnnotationKey]
	if !given {
		return nil
	}
	if _, err := backoff.Parse(value); err != nil {
		path := field.NewPath("metadata", "annotations").Key(backoff.AnnotationKey)
		return field.ErrorList{field.Invalid(path, value, err.Error())}
	}
	return nil
}
