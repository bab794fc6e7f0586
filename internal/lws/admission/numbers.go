package admission

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
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

// checkRollingUpdate looks at each number for itself. It requires that a rollout can proceed: one group may be
// unavailable, or one may surge.
func checkRollingUpdate(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	rolling, groups := set.Spec.RolloutStrategy.RollingUpdateConfiguration, int(workload.Replicas(set))
	if rolling == nil {
		return nil
	}
	partition := ptr.Deref(rolling.Partition, 0)
	unavailable, badUnavailable := intstr.GetScaledValueFromIntOrPercent(&rolling.MaxUnavailable, groups, false)
	surge, badSurge := intstr.GetScaledValueFromIntOrPercent(&rolling.MaxSurge, groups, true)
	isRead := badUnavailable == nil && badSurge == nil
	return slices.Concat(
		checkIntOrPercent(rolling.MaxUnavailable, unavailablePath),
		checkIntOrPercent(rolling.MaxSurge, surgePath),
		when(partition < 0, field.Invalid(partitionPath, partition, apivalidation.IsNegativeErrorMsg)),
		when(badUnavailable != nil, field.Invalid(unavailablePath, rolling.MaxUnavailable, "invalid value")),
		when(badSurge != nil, field.Invalid(surgePath, rolling.MaxSurge, "invalid value")),
		when(isRead && groups != 0 && unavailable == 0 && surge == 0,
			field.Invalid(unavailablePath, rolling.MaxUnavailable, "must not be 0 when `maxSurge` is 0")),
	)
}

// checkIntOrPercent takes whole numbers from 0 and percentages from 0% to 100%.
func checkIntOrPercent(value intstr.IntOrString, path *field.Path) (faults field.ErrorList) {
	if value.Type == intstr.Int {
		return when(value.IntVal < 0, field.Invalid(path, value, apivalidation.IsNegativeErrorMsg))
	}
	for _, why := range validation.IsValidPercent(value.StrVal) {
		faults = append(faults, field.Invalid(path, value, why))
	}
	percent, err := intstr.GetScaledValueFromIntOrPercent(&value, 100, false)
	isMore := len(faults) == 0 && (err != nil || percent < 0 || percent > 100)
	return append(faults, when(isMore, field.Invalid(path, value, "must not be greater than 100%"))...)
}

// The StatefulSet controller allocates memory for every pod of a StatefulSet before it creates the
// first: 17 GB for a size of two thousand million, which ends it for the whole cluster. A million
// pods take 8 MB, and are more than any cluster holds.
const (
	maxReplicas = 1_000_000
	maxSize     = 1_000_000
)

// checkCounts bounds the numbers of groups and pods. Those of a set stay within an int32, in which others count them.
func checkCounts(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	groups, size := workload.Replicas(set), workload.Size(set)
	return slices.Concat(
		when(groups < 0, field.Invalid(replicasPath, groups, "replicas must be equal or greater than 0")),
		when(groups > maxReplicas, field.Invalid(replicasPath, groups, "replicas must be equal or less than 1000000")),
		when(size < 1, field.Invalid(sizePath, size, "size must be equal or greater than 1")),
		when(size > maxSize, field.Invalid(sizePath, size,
			"size must be equal or less than 1000000: more pods than a cluster holds; use more groups")),
		when(int64(groups)*int64(size) > math.MaxInt32, field.Invalid(replicasPath, groups,
			"the product of replicas and worker replicas must not exceed 2147483647")),
	)
}

var subgroupSizePath = templatePath.Child("subGroupPolicy", "subGroupSize")

// checkSubgroups requires that subgroups of one size divide the pods of a group, with at most the leader left over.
func checkSubgroups(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	policy := set.Spec.LeaderWorkerTemplate.SubGroupPolicy
	switch {
	case policy == nil:
		return nil
	case policy.SubGroupSize == nil:
		return field.ErrorList{field.Required(subgroupSizePath, "subGroupSize is required")}
	case *policy.SubGroupSize < 1:
		return field.ErrorList{field.Invalid(subgroupSizePath, *policy.SubGroupSize, "subGroupSize must be equal or greater than 1")}
	}
	whole, part := workload.Size(set), *policy.SubGroupSize
	isLeaderExcluded := ptr.Deref(policy.Type, "") == lwsv1.SubGroupPolicyTypeLeaderExcluded
	refuse := func(isWrong bool, why string) field.ErrorList {
		return when(isWrong, field.Invalid(subgroupSizePath, part, why))
	}
	return slices.Concat(
		refuse(whole%part != 0 && (whole-1)%part != 0, "size or size - 1 must be divisible by subGroupSize"),
		refuse(whole < part, "subGroupSize cannot be larger than size"),
		refuse(isLeaderExcluded && (whole-1)%part != 0, "size-1 must be divisible by subGroupSize when using LeaderExcluded"),
	)
}

// checkSubgroupChange keeps subgroups as they were made: pods carry their
// subgroup for life, and groups of two layouts would overlap.
func checkSubgroupChange(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	is, was, why := subgroupSize(set), subgroupSize(old), apivalidation.FieldImmutableErrorMsg
	switch {
	case was == nil:
		why = "cannot enable subGroupSize after the lws is already created"
	case is == nil:
		why = "cannot remove subGroupSize after enabled"
	}
	return when(!ptr.Equal(is, was), field.Invalid(subgroupSizePath, is, why))
}

func subgroupSize(set *lwsv1.LeaderWorkerSet) *int32 {
	return ptr.Deref(set.Spec.LeaderWorkerTemplate.SubGroupPolicy, lwsv1.SubGroupPolicy{}).SubGroupSize
}

var (
	specPath     = field.NewPath("spec")
	replicasPath = specPath.Child("replicas")
	templatePath = specPath.Child("leaderWorkerTemplate")
	sizePath     = templatePath.Child("size")
	rollingPath  = specPath.Child("rolloutStrategy", "rollingUpdateConfiguration")
	claimsPath   = templatePath.Child("volumeClaimTemplates")
)

// podTemplate is a template pods are made from, and where the user wrote it.
type podTemplate struct {
	path *field.Path
	*corev1.PodTemplateSpec
}

// when returns a fault if a rule is broken, and nothing else.
func when(isBroken bool, fault *field.Error) field.ErrorList {
	if isBroken {
		return field.ErrorList{fault}
	}
	return nil
}

// leaderTemplate returns the template of leaders.
func leaderTemplate(set *lwsv1.LeaderWorkerSet) podTemplate {
	if own := set.Spec.LeaderWorkerTemplate.LeaderTemplate; own != nil {
		return podTemplate{templatePath.Child("leaderTemplate"), own}
	}
	return workerTemplate(set)
}

func workerTemplate(set *lwsv1.LeaderWorkerSet) podTemplate {
	return podTemplate{templatePath.Child("workerTemplate"), &set.Spec.LeaderWorkerTemplate.WorkerTemplate}
}
