package admission

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
)

func readGangScheduler(set *lwsv1.LeaderWorkerSet) any {
	return set.Annotations[lwsv1.GangSchedulerAnnotationKey]
}

// checkGangScheduler refuses a scheduler nobody knows: its groups would be placed
// pod by pod, and nobody would be told.
func checkGangScheduler(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	choices := append(gang.Names(), lwsv1.NoGangScheduler)
	if name := set.Annotations[lwsv1.GangSchedulerAnnotationKey]; name != "" && !slices.Contains(choices, name) {
		return field.ErrorList{field.NotSupported(annotationsPath.Key(lwsv1.GangSchedulerAnnotationKey), name, choices)}
	}
	return nil
}

// warnGangScheduler: the objects of a gang mean something to its own scheduler
// alone.
func warnGangScheduler(set *lwsv1.LeaderWorkerSet) []string {
	name := set.Annotations[lwsv1.GangSchedulerAnnotationKey]
	if gang.Named(name) == nil {
		return nil
	}
	var warnings []string
	for _, template := range templatesInUse(set) {
		if template.Spec.SchedulerName != name {
			warnings = append(warnings, fmt.Sprintf("%s: is not %q, so these pods are placed one by one", template.path.Child("spec", "schedulerName"), name))
		}
	}
	return warnings
}
