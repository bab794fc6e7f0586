package admission

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

func readPaused(set *lwsv1.LeaderWorkerSet) any {
	value, said := set.Annotations[lwsv1.PausedAnnotationKey]
	return []any{value, said}
}

// checkPaused refuses what is neither yes nor no: somebody who writes "yes" would
// take a rollout to be held that goes on.
func checkPaused(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	value, said := set.Annotations[lwsv1.PausedAnnotationKey]
	if !said || value == lwsv1.PausedValue || value == "false" {
		return nil
	}
	return field.ErrorList{field.NotSupported(annotationsPath.Key(lwsv1.PausedAnnotationKey), value, []string{"true", "false"})}
}
