package lws

import (
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/backoff"
)

// backoffOf is the back-off of a set. What cannot be read is as if it were not
// there: admission refuses it.
func backoffOf(set *lwsv1.LeaderWorkerSet) backoff.Policy {
	value, given := set.Annotations[backoff.AnnotationKey]
	if !given {
		return backoff.Default
	}
	b, err := backoff.Parse(value)
	if err != nil {
		return backoff.Default
	}
	return b
}
