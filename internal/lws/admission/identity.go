package admission

import (
	"cmp"
	"fmt"
	"slices"

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

// checkHashIdentity refuses what needs groups with numbers, names that leave no room for a key, and what needs keys.
func checkHashIdentity(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	if policy := set.Spec.GroupReplacementPolicy; !workload.HasHashIdentity(set) {
		return when(policy == lwsv1.ImmediateGroupReplacement, field.Invalid(specPath.Child("groupReplacementPolicy"), policy,
			"Immediate is only supported with groupIdentity Hash"))
	}
	refuse := func(isWrong bool, why string) field.ErrorList {
		return when(isWrong, field.Invalid(identityPath, set.Spec.GroupIdentity, why+" with groupIdentity Hash"))
	}
	rolling := ptr.Deref(set.Spec.RolloutStrategy.RollingUpdateConfiguration, lwsv1.RollingUpdateConfiguration{})
	limit := maxHashName
	if workload.Size(set) < 2 {
		limit = maxLoneHashName
	}
	return slices.Concat(
		refuse(len(set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates) > 0, "volumeClaimTemplates are not supported"),
		refuse(ptr.Deref(rolling.Partition, 0) != 0, "rollingUpdateConfiguration.partition is not supported"),
		refuse(leaderTemplate(set).Spec.Hostname != "", "a leader pod hostname is not supported"),
		when(len(set.Name) > limit, field.Invalid(field.NewPath("metadata", "name"), set.Name,
			fmt.Sprintf("must be no more than %d characters with groupIdentity Hash", limit))),
	)
}

// checkIdentityChange keeps the identity that groups were made with: absent is Ordinal.
func checkIdentityChange(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	is, was := cmp.Or(set.Spec.GroupIdentity, lwsv1.OrdinalGroupIdentity), cmp.Or(old.Spec.GroupIdentity, lwsv1.OrdinalGroupIdentity)
	return when(is != was, field.Invalid(identityPath, is, "groupIdentity is immutable"))
}
