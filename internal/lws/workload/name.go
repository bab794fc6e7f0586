package workload

import (
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// revisionHashLength is the longest hash that the StatefulSet controller appends: ten digits, each
// replaced by one character.
const revisionHashLength = 10

// NameLimit is how many characters the name of a set may have whose groups have ordinals. The StatefulSet controller
// labels each pod with the name of its StatefulSet, a dash and a hash, and a label value has at most 63 characters.
func NameLimit(set *lwsv1.LeaderWorkerSet) int {
	limit := validation.LabelValueMaxLength - len("-") - revisionHashLength
	if Size(set) < 2 {
		return limit
	}
	_, surge := Budget(set)
	last := max(int64(Replicas(set))+int64(surge)-1, 0) // its worker StatefulSet has the longest name
	return limit - len("-") - len(strconv.FormatInt(last, 10))
}

// IsNameTooLong reports whether a set has a name with which its last group never gets its pods.
func IsNameTooLong(set *lwsv1.LeaderWorkerSet) bool {
	return !HasHashIdentity(set) && len(set.Name) > NameLimit(set) // a Hash set has a limit of its own
}
