package admission

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/backoff"
	"lockstep.dev/lockstep/internal/gang"
)

// The rules below refuse annotations that cannot be read: the operator would ignore them,
// and the user would not know.

var annotationsPath = field.NewPath("metadata", "annotations")

func checkPaused(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	return checkChoice(set, lwsv1.PausedAnnotationKey, lwsv1.PausedValue, "false")
}

// checkGangScheduler refuses an unknown scheduler: groups would be placed pod by pod.
func checkGangScheduler(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	if set.Annotations[lwsv1.GangSchedulerAnnotationKey] == "" {
		return nil
	}
	return checkChoice(set, lwsv1.GangSchedulerAnnotationKey, gang.Volcano, lwsv1.NoGangScheduler)
}

func checkChoice(set *lwsv1.LeaderWorkerSet, key string, choices ...string) field.ErrorList {
	if value, given := set.Annotations[key]; given && !slices.Contains(choices, value) {
		return field.ErrorList{field.NotSupported(annotationsPath.Key(key), value, choices)}
	}
	return nil
}

func checkHistoryLimit(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	value, given := set.Annotations[lwsv1.HistoryLimitAnnotationKey]
	if limit, err := strconv.Atoi(value); !given || err == nil && limit >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(annotationsPath.Key(lwsv1.HistoryLimitAnnotationKey), shortened(value), "must be a whole number from 0")}
}

func checkBackoff(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	value, given := set.Annotations[backoff.AnnotationKey]
	if !given {
		return nil
	}
	if _, err := backoff.Parse(value); err != nil {
		return field.ErrorList{field.Invalid(annotationsPath.Key(backoff.AnnotationKey), value, err.Error())}
	}
	return nil
}
