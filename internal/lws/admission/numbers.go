package admission

import (
	"math"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

var (
	unavailablePath = rollingPath.Child("maxUnavailable")
	surgePath       = rollingPath.Child("maxSurge")
	partitionPath   = rollingPath.Child("partition")
)

// checkRollingUpdate looks at each number for itself.
func checkRollingUpdate(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	rolling := set.Spec.RolloutStrategy.RollingUpdateConfiguration
	if rolling == nil {
		return nil
	}
	faults := checkIntOrPercent(rolling.MaxUnavailable, unavailablePath)
	faults = append(faults, checkIntOrPercent(rolling.MaxSurge, surgePath)...)
	if partition := ptr.Deref(rolling.Partition, 0); partition < 0 {
		faults = append(faults, field.Invalid(partitionPath, partition, apivalidation.IsNegativeErrorMsg))
	}
	return faults
}

// checkIntOrPercent takes whole numbers from 0 and percentages from 0% to 100%.
func checkIntOrPercent(value intstr.IntOrString, path *field.Path) field.ErrorList {
	if value.Type == intstr.Int {
		if value.IntVal < 0 {
			return field.ErrorList{field.Invalid(path, value, apivalidation.IsNegativeErrorMsg)}
		}
		return nil
	}
	var faults field.ErrorList
	for _, why := range validation.IsValidPercent(value.StrVal) {
		faults = append(faults, field.Invalid(path, value, why))
	}
	percent, err := intstr.GetScaledValueFromIntOrPercent(&value, 100, false)
	if len(faults) == 0 && (err != nil || percent < 0 || percent > 100) {
		faults = append(faults, field.Invalid(path, value, "must not be greater than 100%"))
	}
	return faults
}

// checkBudget requires that a rollout can proceed: one group may be unavailable, or one may surge.
func checkBudget(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	rolling := set.Spec.RolloutStrategy.RollingUpdateConfiguration
	if rolling == nil {
		return nil
	}
	var faults field.ErrorList
	groups := int(workload.Replicas(set))
	unavailable, err := intstr.GetScaledValueFromIntOrPercent(&rolling.MaxUnavailable, groups, false)
	if err != nil {
		faults = append(faults, field.Invalid(unavailablePath, rolling.MaxUnavailable, "invalid value"))
	}
	surge, err := intstr.GetScaledValueFromIntOrPercent(&rolling.MaxSurge, groups, true)
	if err != nil {
		faults = append(faults, field.Invalid(surgePath, rolling.MaxSurge, "invalid value"))
	}
	if len(faults) == 0 && groups != 0 && unavailable == 0 && surge == 0 {
		faults = append(faults, field.Invalid(unavailablePath, rolling.MaxUnavailable, "must not be 0 when `maxSurge` is 0"))
	}
	return faults
}

// The StatefulSet controller allocates memory for every pod of a StatefulSet before it creates the
// first: 17 GB for a size of two thousand million, which ends it for the whole cluster. A million
// pods take 8 MB, and are more than any cluster holds.
const (
	maxReplicas = 1_000_000
	maxSize     = 1_000_000
)

func checkReplicas(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	switch n := workload.Replicas(set); {
	case n < 0:
		return field.ErrorList{field.Invalid(replicasPath, n, "replicas must be equal or greater than 0")}
	case n > maxReplicas:
		return field.ErrorList{field.Invalid(replicasPath, n, "replicas must be equal or less than 1000000")}
	}
	return nil
}

func checkSize(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	switch n := workload.Size(set); {
	case n < 1:
		return field.ErrorList{field.Invalid(sizePath, n, "size must be equal or greater than 1")}
	case n > maxSize:
		return field.ErrorList{field.Invalid(sizePath, n, "size must be equal or less than 1000000: more pods than a cluster holds; use more groups")}
	}
	return nil
}

// checkProduct keeps the number of pods of a set within an int32, in which
// others count them.
func checkProduct(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	if int64(workload.Replicas(set))*int64(workload.Size(set)) > math.MaxInt32 {
		return field.ErrorList{field.Invalid(replicasPath, workload.Replicas(set),
			"the product of replicas and worker replicas must not exceed 2147483647")}
	}
	return nil
}

var subgroupSizePath = templatePath.Child("subGroupPolicy", "subGroupSize")

// checkSubgroups requires that subgroups of one size divide the pods of a group, with at most the
// leader left over.
func checkSubgroups(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	policy := set.Spec.LeaderWorkerTemplate.SubGroupPolicy
	if policy == nil {
		return nil
	}
	if policy.SubGroupSize == nil {
		return field.ErrorList{field.Required(subgroupSizePath, "subGroupSize is required")}
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
