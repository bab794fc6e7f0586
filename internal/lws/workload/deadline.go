package workload

import (
	"encoding/json"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

const (
	// ProgressDeadlineAnnotationKey on a set says for how long it may make no progress; see ParseProgressDeadline.
	ProgressDeadlineAnnotationKey = "lockstep.dev/progress-deadline"
	// UsualProgressDeadline is the value that a new set has where the configuration says nothing.
	UsualProgressDeadline = "30m"
)

// ParseProgressDeadline reads the value of the annotation: a duration, or "off", which is zero.
func ParseProgressDeadline(value string) (time.Duration, error) {
	if value == "off" {
		return 0, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < time.Second || d > 7*24*time.Hour {
		return 0, errors.New("must be off, or a duration from 1s to 168h, such as 30m")
	}
	return d, nil
}

// ProgressDeadline is that of a set, or zero for none. byDefault holds without an annotation.
func ProgressDeadline(set *lwsv1.LeaderWorkerSet, byDefault time.Duration) time.Duration {
	if value := set.Annotations[ProgressDeadlineAnnotationKey]; value != "" {
		byDefault, _ = ParseProgressDeadline(value) // zero for what admission refuses
	}
	return byDefault
}

// OnlySpecWritten returns the managed fields that SpecWritten needs: one entry, with the time alone.
func OnlySpecWritten(set *lwsv1.LeaderWorkerSet) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: SpecWritten(set)}, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}
}

// SpecWritten is when the spec was written last, by its managed fields, or zero. The scale subresource writes it too.
func SpecWritten(set metav1.Object) (at time.Time) {
	for _, entry := range set.GetManagedFields() {
		var owned map[string]json.RawMessage
		if entry.FieldsV1 == nil || entry.Time == nil || entry.Subresource == "status" || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
			continue
		}
		if owned["f:spec"] != nil && entry.Time.After(at) {
			at = entry.Time.Time
		}
	}
	return at
}
