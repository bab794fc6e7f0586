package admission

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// checkRetention is stricter than the schema, whose fields are plain strings. An
// empty one is the StatefulSet's default.
func checkRetention(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	policy := set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy
	if policy == nil {
		return nil
	}
	path := templatePath.Child("persistentVolumeClaimRetentionPolicy")
	return append(checkRetentionType(policy.WhenDeleted, path.Child("whenDeleted")),
		checkRetentionType(policy.WhenScaled, path.Child("whenScaled"))...)
}

func checkRetentionType(policy appsv1.PersistentVolumeClaimRetentionPolicyType, path *field.Path) field.ErrorList {
	switch policy {
	case "", appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType:
		return nil
	}
	return field.ErrorList{field.Invalid(path, policy, "must be Retain or Delete")}
}

// checkClaimsChange keeps the claims as they were made. The StatefulSets cannot
// take a change, and would refuse every later update of the set with it. What
// does not reach them may change.
func checkClaimsChange(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	if workload.SameClaimTemplates(set.Namespace, set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates, old.Spec.LeaderWorkerTemplate.VolumeClaimTemplates) {
		return nil
	}
	return field.ErrorList{field.Invalid(claimsPath, field.OmitValueType{},
		"field is immutable: the claims of a StatefulSet cannot be changed; put back what it was; to enlarge a volume, resize its claim; for other claims, delete the set and create it again, with whenDeleted Retain if data is to stay")}
}
