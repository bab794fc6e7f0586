package admission

import (
	"fmt"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

func warnTopologies(set *lwsv1.LeaderWorkerSet) []string {
	var warnings []string
	for _, key := range topologyKeys {
		if topology, present := set.Annotations[key]; present && topology == "" {
			warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s]: is empty and places nothing; name a node label, or remove it", key))
		}
	}
	group, subgroup := set.Annotations[lwsv1.ExclusiveKeyAnnotationKey], set.Annotations[lwsv1.SubGroupExclusiveKeyAnnotationKey]
	if group != "" && group == subgroup {
		warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s]: names the same node label as exclusive-topology and has no effect; name a narrower one", lwsv1.SubGroupExclusiveKeyAnnotationKey))
	}
	return warnings
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
