package admission

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// rule is one law about what a set may be.
type rule struct {
	// reads is everything the law looks at. A set stored before the law existed,
	// or past it, must still be updatable: an update that leaves what the law
	// reads as it was is not asked about it. Without that, the garbage collector
	// could not take its finalizer from such a set.
	reads func(*lwsv1.LeaderWorkerSet) any

	check func(*lwsv1.LeaderWorkerSet) field.ErrorList
}

// rules are the laws about what a set may be, in the order of the contract.
var rules = []rule{
	{readReplicas, checkReplicas},
	{readSize, checkSize},
	{readProduct, checkProduct},
	{readRollingUpdate, checkRollingUpdate},
	{readBudget, checkBudget},
	{readSubgroups, checkSubgroups},
	{readSubgroupTopology, checkSubgroupTopology},
}

// changes are the laws about what may become of a set.
var changes = []func(set, old *lwsv1.LeaderWorkerSet) field.ErrorList{
	checkSubgroupChange,
	checkSubdomainChange,
}

// additions are laws beyond the contract. Each refuses only what no
// implementation of the API could make run.
var additions = []rule{
	{readTopologies, checkTopologies},
	{readRetention, checkRetention},
	{readPodLifetime, checkPodLifetime},
	{readLeaderMark, checkLeaderMark},
	{readPaused, checkPaused},
	{readHistoryLimit, checkHistoryLimit},
	{readGangScheduler, checkGangScheduler},
	{readBackoff, checkBackoff},
}

// ValidateCreate says what is wrong with a new set, field by field. Run it after
// Default.
func ValidateCreate(set *lwsv1.LeaderWorkerSet) field.ErrorList {
	faults := checkMetadata(set)
	for _, r := range slices.Concat(rules, additions) {
		faults = append(faults, r.check(set)...)
	}
	return faults
}

// ValidateUpdate says what is wrong with set as the successor of old, field by
// field. Run it after Default.
func ValidateUpdate(set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	faults := checkMetadataUpdate(set, old)
	faults = append(faults, checkTouched(rules, set, old)...)
	for _, check := range changes {
		faults = append(faults, check(set, old)...)
	}
	faults = append(faults, checkTouched(additions, set, old)...)
	return append(faults, checkClaimsChange(set, old)...)
}

// checkTouched asks the laws that read something the update has changed.
func checkTouched(laws []rule, set, old *lwsv1.LeaderWorkerSet) field.ErrorList {
	var faults field.ErrorList
	for _, r := range laws {
		if !equality.Semantic.DeepEqual(r.reads(set), r.reads(old)) {
			faults = append(faults, r.check(set)...)
		}
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

// replicas is spec.replicas as the schema would have it.
func replicas(set *lwsv1.LeaderWorkerSet) int32 {
	return orDefault(set.Spec.Replicas, 1)
}

// size is spec.leaderWorkerTemplate.size as the schema would have it.
func size(set *lwsv1.LeaderWorkerSet) int32 {
	return orDefault(set.Spec.LeaderWorkerTemplate.Size, 1)
}

func orDefault[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}
