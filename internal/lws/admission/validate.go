package admission

import (
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// rules are what a set must be, in the order of the contract. The last ones are beyond it:
// each refuses only what no implementation of the API could run.
var rules = []func(*lwsv1.LeaderWorkerSet) field.ErrorList{
	checkMetadata,
	checkReplicas,
	checkSize,
	checkProduct,
	checkRollingUpdate,
	checkBudget,
	checkSubgroups,
	checkSubgroupTopology,

	checkTopologies,
	checkRetention,
	checkPodLifetime,
	checkLeaderMark,
	checkPaused,
	checkHistoryLimit,
	checkGangScheduler,
	checkBackoff,
}

// changes are what an update may change.
var changes = []func(set, old *lwsv1.LeaderWorkerSet) field.ErrorList{
	checkSubgroupChange,
	checkSubdomainChange,
	checkClaimsChange,
}

// ValidateCreate returns what is wrong with a new set. Run it after Default.
func ValidateCreate(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	var faults field.ErrorList
	for _, check := range rules {
		faults = append(faults, check(set)...)
	}
	return faults
}

// ValidateUpdate returns what is wrong with a set as the successor of another. Run it after
// Default. An update is not refused for a fault that the stored set has: the garbage
// collector could not remove its finalizer otherwise.
func ValidateUpdate(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	had := ValidateCreate(old)
	faults := slices.DeleteFunc(ValidateCreate(set), func(fault *field.Error) bool {
		return slices.ContainsFunc(had, func(h *field.Error) bool { return h.Error() == fault.Error() })
	})
	for _, check := range changes {
		faults = append(faults, check(set, old)...)
	}
	return faults
}

var (
	specPath     = field.NewPath("spec")
	replicasPath = specPath.Child("replicas")
	templatePath = specPath.Child("leaderWorkerTemplate")
	sizePath     = templatePath.Child("size")
	rollingPath  = specPath.Child("rolloutStrategy", "rollingUpdateConfiguration")
	claimsPath   = templatePath.Child("volumeClaimTemplates")
)

// checkMetadata requires a DNS-1035 label as the name: it becomes the name of a Service.
func checkMetadata(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	return apivalidation.ValidateObjectMeta(&set.ObjectMeta, true, apivalidation.NameIsDNS1035Label, field.NewPath("metadata"))
}

// checkSubdomainChange refuses to remove the policy. After Default it is never absent.
func checkSubdomainChange(set, _ *lwsv1.LeaderWorkerSet) field.ErrorList {
	network := set.Spec.NetworkConfig
	if network == nil || network.SubdomainPolicy != nil {
		return nil
	}
	return field.ErrorList{field.Invalid(specPath.Child("networkConfig", "subdomainPolicy"),
		network.SubdomainPolicy, "cannot set subdomainPolicy as null")}
}
