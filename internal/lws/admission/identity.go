package admission

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

const (
	// maxHashName leaves room for the longest label of a worker: the name of its StatefulSet with
	// eight digits of the group's key, and a revision hash.
	maxHashName = 43
	// maxLoneHashName is the same for a set without workers: only the host names of leaders count.
	maxLoneHashName = 54
)

var identityPath = specPath.Child("groupIdentity")

// checkHashIdentity refuses what needs groups with numbers, and names that leave no room for a key.
func checkHashIdentity(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	if !workload.HasHashIdentity(set) {
		return nil
	}
	var faults field.ErrorList
	refuse := func(isWrong bool, why string) {
		if isWrong {
			faults = append(faults, field.Invalid(identityPath, set.Spec.GroupIdentity, why+" with groupIdentity Hash"))
		}
	}
	rolling := set.Spec.RolloutStrategy.RollingUpdateConfiguration
	refuse(len(set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates) > 0, "volumeClaimTemplates are not supported")
	refuse(rolling != nil && ptr.Deref(rolling.Partition, 0) != 0, "rollingUpdateConfiguration.partition is not supported")
	refuse(leaderTemplate(set).Spec.Hostname != "", "a leader pod hostname is not supported")
	limit := maxHashName
	if workload.Size(set) < 2 {
		limit = maxLoneHashName
	}
	if len(set.Name) > limit {
		faults = append(faults, field.Invalid(field.NewPath("metadata", "name"), set.Name,
			fmt.Sprintf("must be no more than %d characters with groupIdentity Hash", limit)))
	}
	return faults
}

func checkGroupReplacement(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	if set.Spec.GroupReplacementPolicy != lwsv1.ImmediateGroupReplacement || workload.HasHashIdentity(set) {
		return nil
	}
	return field.ErrorList{field.Invalid(specPath.Child("groupReplacementPolicy"), set.Spec.GroupReplacementPolicy,
		"Immediate is only supported with groupIdentity Hash")}
}

// checkIdentityChange keeps the identity that groups were made with: absent is Ordinal.
func checkIdentityChange(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	is, was := cmp.Or(set.Spec.GroupIdentity, lwsv1.OrdinalGroupIdentity), cmp.Or(old.Spec.GroupIdentity, lwsv1.OrdinalGroupIdentity)
	if is == was {
		return nil
	}
	return field.ErrorList{field.Invalid(identityPath, is, "groupIdentity is immutable")}
}
