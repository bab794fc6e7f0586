package admission

import (
	"fmt"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
)

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
