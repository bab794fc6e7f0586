// Package admission decides which DisaggregatedSets may enter, warns of what will surprise, and completes the pods of a
// set as they are created.
//
// It knows the contract of the admission webhooks: which text refuses which field. It refuses to know what makes a good
// LeaderWorkerSet: it is handed a function for that. What enters may have bypassed every default and every schema;
// nothing here may panic on it, and nothing costs more than its input is large.
//
// Files, each of which builds on those before it: role.go, placement.go, validate.go, pod.go.
package admission

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilstrings "k8s.io/utils/strings"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/disaggregated"
)

// rules are what a set must be, in the order of the contract.
var rules = []func(*dsv1.DisaggregatedSet) field.ErrorList{
	checkStrategies,
	checkSlices,
	checkNames,
	checkPlacement,
}

// Validate returns what is wrong with a set, and with the LeaderWorkerSet that each role becomes.
func Validate(set *dsv1.DisaggregatedSet, judge Judge) (faults field.ErrorList) {
	switch n := len(set.Spec.Roles); {
	case n > mostRoles:
		return field.ErrorList{field.TooMany(RolesPath, n, mostRoles)}
	case len(set.Name) > validation.DNS1123SubdomainMaxLength: // the faults of each role quote it
		return field.ErrorList{field.TooLong(field.NewPath("metadata", "name"), set.Name, validation.DNS1123SubdomainMaxLength)}
	}
	for _, check := range rules {
		faults = append(faults, check(set)...)
	}
	faults = append(faults, CheckAnnotations(set)...)
	return append(faults, judgeRoles(set, judge, faults)...)
}

// Warnings returns what a set says in vain, whatever is stored.
func Warnings(set, _ *dsv1.DisaggregatedSet) (warnings []string) {
	for i := range min(len(set.Spec.Roles), mostRoles) {
		role := &set.Spec.Roles[i]
		if replicas := replicasOf(role); disaggregated.IsExternal(role) && replicas > 1 {
			warnings = append(warnings, fmt.Sprintf(
				"role %.63q sets scaling.mode: External and spec.replicas: %d — spec.replicas is ignored; drive replicas via DisaggregatedSetRoleScaler %.253q instead",
				role.Name, replicas, disaggregated.ScalerName(set.Name, role.Name)))
		}
	}
	return warnings
}

var (
	annotationsPath    = field.NewPath("metadata", "annotations")
	policies, switches = []string{dsv1.RestartPartners, dsv1.FencePartners}, []string{"true", "false"}
)

// CheckAnnotations refuses values that would be taken for the default. The contract has no such rule: other implementations
// store such sets.
func CheckAnnotations(set *dsv1.DisaggregatedSet) (faults field.ErrorList) {
	for _, rule := range []struct {
		key     string
		choices []string
	}{
		{dsv1.RestartPolicyAnnotationKey, policies}, {dsv1.SurgeOneAnnotationKey, switches}, {dsv1.ServicesAnnotationKey, switches},
		{lwsv1.PausedAnnotationKey, switches},
	} {
		value, isGiven := set.Annotations[rule.key]
		faults = append(faults, when(isGiven && !slices.Contains(rule.choices, value), unknown(rule.key, value, rule.choices))...)
	}
	return append(faults, checkPartners(set)...)
}

// unknown is the fault of an annotation that has none of the values that it may have.
func unknown(key, value string, choices []string) *field.Error {
	return field.NotSupported(annotationsPath.Key(key), utilstrings.ShortenString(value, 64), choices)
}

// checkPartners requires names of roles, of which it names the first that is none: the list may be long.
func checkPartners(set *dsv1.DisaggregatedSet) field.ErrorList {
	value, isGiven := set.Annotations[dsv1.RestartPartnersAnnotationKey]
	if !isGiven {
		return nil
	}
	if _, hasPolicy := set.Annotations[dsv1.RestartPolicyAnnotationKey]; !hasPolicy {
		return field.ErrorList{field.Forbidden(annotationsPath.Key(dsv1.RestartPartnersAnnotationKey), "does nothing without the annotation "+
			dsv1.RestartPolicyAnnotationKey+": set that to "+strings.Join(policies, " or ")+", or remove this one")}
	}
	var names []string
	for i := range set.Spec.Roles {
		names = append(names, set.Spec.Roles[i].Name)
	}
	for name := range strings.SplitSeq(value, ",") {
		if !slices.Contains(names, name) {
			return field.ErrorList{unknown(dsv1.RestartPartnersAnnotationKey, name, names)}
		}
	}
	return nil
}
