package admission

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// subgroupSizePath has its capital S for as long as the API has had it.
var subgroupSizePath = templatePath.Child("SubGroupPolicy", "subGroupSize")

// checkSubgroups sees to it that the pods of a group can be dealt out to
// subgroups of one size, with at most the leader left over.
func checkSubgroups(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	policy := set.Spec.LeaderWorkerTemplate.SubGroupPolicy
	if policy == nil {
		return nil
	}
	if policy.SubGroupSize == nil {
		return field.ErrorList{field.Required(subgroupSizePath, "a subGroupPolicy needs a subGroupSize, the number of pods of a subgroup")}
	}
	whole, part := workload.Size(set), *policy.SubGroupSize
	if part < 1 {
		return field.ErrorList{field.Invalid(subgroupSizePath, part, "subGroupSize must be equal or greater than 1")}
	}
	var faults field.ErrorList
	if whole%part != 0 && (whole-1)%part != 0 {
		faults = append(faults, field.Invalid(subgroupSizePath, part, "size or size - 1 must be divisible by subGroupSize"))
	}
	if whole < part {
		faults = append(faults, field.Invalid(subgroupSizePath, part, "subGroupSize cannot be larger than size"))
	}
	if leaderExcluded(policy) && (whole-1)%part != 0 {
		faults = append(faults, field.Invalid(subgroupSizePath, part, "size-1 must be divisible by subGroupSize when using LeaderExcluded"))
	}
	return faults
}

func leaderExcluded(policy *lwsv1.SubGroupPolicy) bool {
	return policy.Type != nil && *policy.Type == lwsv1.SubGroupPolicyTypeLeaderExcluded
}

// checkSubgroupChange keeps subgroups as they were made: pods carry their
// subgroup for life, and groups of two layouts would overlap.
func checkSubgroupChange(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	is, was := subgroupSize(set), subgroupSize(old)
	switch {
	case is == nil && was == nil:
		return nil
	case was == nil:
		return field.ErrorList{field.Invalid(subgroupSizePath, *is, "cannot enable subGroupSize after the lws is already created")}
	case is == nil:
		return field.ErrorList{field.Invalid(subgroupSizePath, is, "cannot remove subGroupSize after enabled")}
	case *is != *was:
		return field.ErrorList{field.Invalid(subgroupSizePath, *is, apivalidation.FieldImmutableErrorMsg)}
	}
	return nil
}

func subgroupSize(set *lwsv1.LeaderWorkerSet) *int32 {
	if policy := set.Spec.LeaderWorkerTemplate.SubGroupPolicy; policy != nil {
		return policy.SubGroupSize
	}
	return nil
}
