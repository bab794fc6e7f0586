package admission

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Warnings returns what about set will not do what it seems to. old is nil for a new set. An update
// repeats no warning of the set before it: the same manifest may be applied every minute.
//
// Each warning is short enough for the API server, which cuts at 256 characters.
func Warnings(set, old *lwsv1.LeaderWorkerSet) []string {
	warnings := warn(set)
	if old == nil {
		return warnings
	}
	told := warn(old)
	warnings = slices.DeleteFunc(warnings, func(w string) bool { return slices.Contains(told, w) })
	return append(warnings, warnTopologyChange(set, old)...)
}

func warn(set *lwsv1.LeaderWorkerSet) []string {
	return append(warnLongName(set), warnGangScheduler(set)...)
}

// revisionHashLength is the longest hash the StatefulSet controller appends: ten
// digits, each replaced by one character. Shorter ones happen, which is why a
// name that is too long is not refused: it may be lucky.
const revisionHashLength = 10

// warnLongName counts the characters of the longest label the StatefulSet
// controller puts on pods: the name of their StatefulSet, a dash, a hash. The
// API server refuses a pod with a label value of more than 63 characters.
func warnLongName(set *lwsv1.LeaderWorkerSet) []string {
	limit := validation.LabelValueMaxLength - len("-") - revisionHashLength - groupSuffixLength(set)
	if len(set.Name) <= limit || workload.HasHashIdentity(set) { // the name of the latter has a limit
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

// warnTopologyChange: an annotation is quickly changed, and here all groups pay for
// it.
func warnTopologyChange(set, old *lwsv1.LeaderWorkerSet) []string {
	var warnings []string
	for _, key := range topologyKeys {
		if set.Annotations[key] != old.Annotations[key] {
			warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s]: changing it replaces every group, within maxUnavailable and from the partition on", key))
		}
	}
	return warnings
}

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
