package admission

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

var schedulingPath = specPath.Child("scheduling")

// checkScheduling refuses what needs a feature gate that this version does not have. A set that is stored with it is
// left alone.
func checkScheduling(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	if set.Spec.Scheduling == nil {
		return nil
	}
	return field.ErrorList{field.Forbidden(schedulingPath, "requires the WorkloadAwareScheduling feature gate")}
}

// checkSchedulingChange keeps the pods of a set in the PodGroups that they were made for.
func checkSchedulingChange(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	is, was := set.Spec.Scheduling != nil, old.Spec.Scheduling != nil
	switch {
	case is && !was:
		return field.ErrorList{field.Forbidden(schedulingPath, "cannot add scheduling after creation")}
	case was && !is:
		return field.ErrorList{field.Forbidden(schedulingPath, "cannot remove scheduling after creation")}
	}
	return nil
}
