package admission

import (
	"fmt"
	"slices"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Warnings returns what about set will not do what it seems to. old is nil for a new set. An update
// repeats no warning of the set before it: the same manifest may be applied every minute. What keeps
// the set from running is told each time.
//
// Each warning is short enough for the API server, which cuts at 256 characters.
func Warnings(set, old *lwsv1.LeaderWorkerSet) []string {
	warnings := warn(set)
	if old == nil {
		return warnings
	}
	told := warn(old)
	warnings = slices.DeleteFunc(warnings, func(w string) bool { return slices.Contains(told, w) })
	return slices.Concat(warnStored(set), warnings, warnTopologyChange(set, old))
}

func warn(set *lwsv1.LeaderWorkerSet) []string {
	warnings := append(warnGangScheduler(set), warnAnnotations(set)...)
	if unavailable, _ := workload.Budget(set); unavailable < 1 && workload.LimitsEvictions(set, false) {
		warnings = append(warnings, "maxUnavailable is 0: evictions of this set's pods are always refused, so node drains wait")
	}
	return warnings
}

// warnStored warns of what a new set may not have. A stored set that has it may be changed all the same.
func warnStored(set *lwsv1.LeaderWorkerSet) (warnings []string) {
	if workload.IsNameTooLong(set) {
		warnings = append(warnings, "metadata.name: "+nameTooLong(set))
	}
	for _, fault := range checkContainers(set) {
		warnings = append(warnings, fault.Error())
	}
	return warnings
}

// warnTopologyChange: an annotation is quickly changed, and here all groups pay for it.
func warnTopologyChange(set, old *lwsv1.LeaderWorkerSet) (warnings []string) {
	for _, key := range topologyKeys {
		if set.Annotations[key] != old.Annotations[key] {
			warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s]: changing it replaces every group, within maxUnavailable and from the partition on", key))
		}
	}
	return warnings
}

// warnGangScheduler warns of pods with another scheduler: only Volcano reads PodGroups.
func warnGangScheduler(set *lwsv1.LeaderWorkerSet) (warnings []string) {
	name := set.Annotations[lwsv1.GangSchedulerAnnotationKey]
	for _, template := range templatesInUse(set) {
		if name == gang.Volcano && template.Spec.SchedulerName != name {
			warnings = append(warnings, fmt.Sprintf("%s: is not %q, so these pods are placed one by one", template.path.Child("spec", "schedulerName"), name))
		}
	}
	return warnings
}
