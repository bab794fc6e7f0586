// Package backoff computes how long a group that fails repeatedly waits for its recreation.
//
// It knows the annotation of a back-off and how waits grow. It refuses to know what fails and what time it is.
package backoff

import (
	"fmt"
	"strings"
	"time"
)

// Policy has the waits between failures of a group and its recreation. The first failure does not wait.
type Policy struct {
	// First is the wait after the second failure in a row. Zero disables all waits.
	First time.Duration
	// Max is the longest wait. Each wait is twice the one before.
	Max time.Duration
	// Reset is the time without a failure after which the count starts again.
	Reset time.Duration
}

// Default is the policy of sets without the annotation.
var Default = Policy{First: 10 * time.Second, Max: 5 * time.Minute, Reset: 10 * time.Minute}

// AnnotationKey on a set has its policy; see Parse.
const AnnotationKey = "lockstep.dev/restart-backoff"

const off = "off"

// Parse reads the value of the back-off annotation: "off", or any of
// first=10s, max=5m and reset=10m, separated by commas. With an error it returns the default.
func Parse(value string) (Policy, error) {
	if value == off {
		return Policy{}, nil
	}
	b := Default
	fields := map[string]*time.Duration{"first": &b.First, "max": &b.Max, "reset": &b.Reset}
	for part := range strings.SplitSeq(value, ",") {
		name, text, _ := strings.Cut(strings.TrimSpace(part), "=")
		field := fields[name]
		if field == nil {
			return Default, fmt.Errorf("%q is none of first=DURATION, max=DURATION, reset=DURATION, and the whole is not %q", part, off)
		}
		fields[name] = nil // a repeated field is unknown
		duration, err := time.ParseDuration(text)
		if err != nil || duration < time.Second || duration > 24*time.Hour {
			return Default, fmt.Errorf("%q must be a duration from 1s to 24h, such as %s=30s", part, name)
		}
		*field = duration
	}
	if b.First > b.Max {
		return Default, fmt.Errorf("first (%s) must not be longer than max (%s)", b.First, b.Max)
	}
	return b, nil
}

// After returns the wait after the count-th failure in a row.
func (b Policy) After(count int32) time.Duration {
	if count <= 1 || b.First == 0 {
		return 0
	}
	wait := b.First
	for i := int32(2); i < count && wait < b.Max; i++ {
		wait *= 2
	}
	return min(wait, b.Max)
}
