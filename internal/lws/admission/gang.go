package admission

import (
	"fmt"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
)

// warnGangScheduler warns of pods with another scheduler: only Volcano reads PodGroups.
func warnGangScheduler(set *lwsv1.LeaderWorkerSet) []string {
	name := set.Annotations[lwsv1.GangSchedulerAnnotationKey]
	if name != gang.Volcano {
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
