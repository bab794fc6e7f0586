package admission

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// revisionHashLength is the longest hash the StatefulSet controller appends: ten
// digits, each replaced by one character. Shorter ones happen, which is why a
// name that is too long is not refused: it may be lucky.
const revisionHashLength = 10

// warnLongName counts the characters of the longest label the StatefulSet
// controller puts on pods: the name of their StatefulSet, a dash, a hash. The
// API server refuses a pod with a label value of more than 63 characters.
func warnLongName(set *lwsv1.LeaderWorkerSet) []string {
	limit := validation.LabelValueMaxLength - len("-") - revisionHashLength - groupSuffixLength(set)
	if len(set.Name) <= limit {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: has %d characters: pods may be refused, since their labels hold it together with group index and revision hash; use at most %d",
		len(set.Name), limit)}
}

// groupSuffixLength is what the name of the last group's worker StatefulSet adds
// to that of the set. Without workers there is none.
func groupSuffixLength(set *lwsv1.LeaderWorkerSet) int {
	if workload.Size(set) < 2 {
		return 0
	}
	_, surge := workload.Budget(set)
	last := max(int64(workload.Replicas(set))+int64(surge)-1, 0)
	return len("-") + len(strconv.FormatInt(last, 10))
}
