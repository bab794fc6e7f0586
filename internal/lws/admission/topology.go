package admission

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

func checkSubgroupTopology(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	topology, wanted := set.Annotations[lwsv1.SubGroupExclusiveKeyAnnotationKey]
	if !wanted || set.Spec.LeaderWorkerTemplate.SubGroupPolicy != nil {
		return nil
	}
	return field.ErrorList{field.Invalid(annotationsPath.Child(lwsv1.SubGroupExclusiveKeyAnnotationKey), topology,
		"cannot have subgroup-exclusive-topology without subGroupSize set")}
}

// topologyKeys are the annotations that name a node label.
var topologyKeys = []string{lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey}

// checkTopologies refuses what is no node label: it goes into the affinity of
// every leader, and the API server would refuse them one by one. An empty value
// is the same as none.
func checkTopologies(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	var faults field.ErrorList
	for _, key := range topologyKeys {
		topology := set.Annotations[key]
		if topology == "" {
			continue
		}
		for _, why := range validation.IsQualifiedName(topology) {
			faults = append(faults, field.Invalid(annotationsPath.Child(key), topology, "must be the key of a node label: "+why))
		}
	}
	return faults
}
