package admission

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/disaggregated"
)

// mostRoles is the limit of the schema. A client that calls the webhook itself has met no schema.
const mostRoles = 10

// RolesPath is where roles are written.
var RolesPath = field.NewPath("spec", "roles")

// Judge returns what is wrong with the LeaderWorkerSet of a role. It may change the LeaderWorkerSet.
type Judge func(role string, set *lwsv1.LeaderWorkerSet) field.ErrorList

// RoleSet returns the LeaderWorkerSet that a role becomes in the last slice. Its revision is not known yet, and has eight
// characters.
func RoleSet(set *dsv1.DisaggregatedSet, role *dsv1.DisaggregatedRole) *lwsv1.LeaderWorkerSet {
	role = role.DeepCopy()
	return &lwsv1.LeaderWorkerSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: nameOf(set, role), UID: set.UID, DeletionTimestamp: set.DeletionTimestamp,
			Labels: role.Metadata.Labels, Annotations: role.Metadata.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, dsv1.GroupVersion.WithKind("DisaggregatedSet"))},
		},
		Spec: role.Spec,
	}
}

// nameOf is the name of that LeaderWorkerSet, as long as it will be.
func nameOf(set *dsv1.DisaggregatedSet, role *dsv1.DisaggregatedRole) string {
	return disaggregated.ChildName(set.Name, disaggregated.Place{Slice: max(disaggregated.Slices(set), 1) - 1, Revision: "00000000", Role: role.Name})
}

func replicasOf(role *dsv1.DisaggregatedRole) int32 { return ptr.Deref(role.Spec.Replicas, 1) }

// checkEach returns the faults of each role.
func checkEach(set *dsv1.DisaggregatedSet, check func(*dsv1.DisaggregatedRole, *field.Path) field.ErrorList) (faults field.ErrorList) {
	for i := range set.Spec.Roles {
		faults = append(faults, check(&set.Spec.Roles[i], RolesPath.Index(i))...)
	}
	return faults
}

// when returns a fault if a rule is broken, and nothing else.
func when(isBroken bool, fault *field.Error) field.ErrorList {
	if isBroken {
		return field.ErrorList{fault}
	}
	return nil
}

// checkStrategies refuses what the set decides for all roles.
func checkStrategies(set *dsv1.DisaggregatedSet) field.ErrorList {
	return checkEach(set, func(role *dsv1.DisaggregatedRole, path *field.Path) field.ErrorList {
		strategy, path := role.Spec.RolloutStrategy, path.Child("spec", "rolloutStrategy")
		known := []lwsv1.RolloutStrategyType{lwsv1.RollingUpdateStrategyType, ""}
		rolling := ptr.Deref(strategy.RollingUpdateConfiguration, lwsv1.RollingUpdateConfiguration{})
		return append(when(!slices.Contains(known, strategy.Type), field.NotSupported(path.Child("type"), strategy.Type, known)),
			when(ptr.Deref(rolling.Partition, 0) != 0, field.Forbidden(path.Child("rollingUpdateConfiguration", "partition"),
				"partition is not supported by DisaggregatedSet; rolling updates are managed across roles by the DisaggregatedSet controller"))...)
	})
}

// checkNames refuses names whose scaler cannot be created, or with which the last group never gets its pods: a label value
// has at most 63 characters.
func checkNames(set *dsv1.DisaggregatedSet) field.ErrorList {
	return checkEach(set, func(role *dsv1.DisaggregatedRole, path *field.Path) field.ErrorList {
		const most = validation.LabelValueMaxLength
		scaler, longest := disaggregated.ScalerName(set.Name, role.Name), len(nameOf(set, role))+suffixOf(role)
		limit := most - longest + len(set.Name) + len(role.Name)
		return append(when(disaggregated.IsExternal(role) && len(scaler) > validation.DNS1123SubdomainMaxLength, field.Invalid(path.Child("name"), role.Name,
			fmt.Sprintf("would produce scaler name %q exceeding 253 characters", scaler))),
			when(longest > most, field.Invalid(path.Child("name"), role.Name, fmt.Sprintf(
				"the generated names (%d chars) would exceed the DNS-1035 limit of 63 characters (accounting for StatefulSet revision hash labels); reduce the DisaggregatedSet name and/or role name (combined limit: %d characters)",
				longest, limit)))...)
	})
}

// suffixOf is how many characters the longest label of a pod has beyond the name of its LeaderWorkerSet: the index or the
// key of the group, and the revision hash of a StatefulSet.
func suffixOf(role *dsv1.DisaggregatedRole) int {
	const key, hash = len("-01234567"), len("-0123456789")
	switch {
	case role.Spec.GroupIdentity != lwsv1.HashGroupIdentity:
		return len("-") + len(strconv.Itoa(max(int(replicasOf(role))-1, 0))) + hash
	case ptr.Deref(role.Spec.LeaderWorkerTemplate.Size, 1) > 1:
		return key + hash
	}
	return key // there are no workers
}

// judgeRoles returns what is wrong with the LeaderWorkerSets that the roles become, where the user wrote it. What is known
// at a path already is not said again in other words.
func judgeRoles(set *dsv1.DisaggregatedSet, judge Judge, known field.ErrorList) field.ErrorList {
	return checkEach(set, func(role *dsv1.DisaggregatedRole, path *field.Path) (faults field.ErrorList) {
		for _, fault := range judge(role.Name, RoleSet(set, role)) {
			moved := *fault
			moved.Field = written(path, fault.Field)
			isKnown := slices.ContainsFunc(known, func(k *field.Error) bool { return k.Field == moved.Field })
			faults = append(faults, when(moved.Field != "" && !isKnown, &moved)...)
		}
		return faults
	})
}

// written returns the path in a DisaggregatedSet for a path in the LeaderWorkerSet of a role. It is empty where the user
// writes nothing, as for an owner.
func written(role *field.Path, at string) string {
	switch {
	case at == "metadata.name":
		return role.Child("name").String()
	case strings.HasPrefix(at, "spec."), strings.HasPrefix(at, "metadata.labels"), strings.HasPrefix(at, "metadata.annotations"):
		return role.String() + "." + at
	}
	return ""
}
