package admission

import (
	"strconv"
	"strings"

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
	if len(faults) == 0 && exceedsHundred(value.StrVal) {
		faults = append(faults, field.Invalid(path, value, "must not be greater than 100%"))
	}
	return faults
}

// exceedsHundred reads digits followed by a percent sign. What is too long for
// an int exceeds a hundred too.
func exceedsHundred(percent string) bool {
	n, err := strconv.Atoi(strings.TrimSuffix(percent, "%"))
	return err != nil || n > 100
}

// checkBudget sees to it that an update can move at all: some group must be
// allowed to be away, or to come on top.
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
