package admission

import (
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

func readHistoryLimit(set *lwsv1.LeaderWorkerSet) any {
	value, said := set.Annotations[lwsv1.HistoryLimitAnnotationKey]
	return []any{value, said}
}

// checkHistoryLimit refuses what is no number of revisions: it would be as if it
// were not there, and revisions that somebody wants to keep would go.
func checkHistoryLimit(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	value, said := set.Annotations[lwsv1.HistoryLimitAnnotationKey]
	if limit, err := strconv.Atoi(value); !said || err == nil && limit >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(annotationsPath.Key(lwsv1.HistoryLimitAnnotationKey), shortened(value), "must be a whole number from 0")}
}
