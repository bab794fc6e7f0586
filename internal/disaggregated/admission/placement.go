package admission

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/disaggregated"
)

// checkSlices refuses more than one slice where one scaler speaks for a role.
func checkSlices(set *dsv1.DisaggregatedSet) field.ErrorList {
	hasExternal := slices.ContainsFunc(set.Spec.Roles, func(role dsv1.DisaggregatedRole) bool { return disaggregated.IsExternal(&role) })
	return when(hasExternal && disaggregated.Slices(set) > 1, field.Forbidden(field.NewPath("spec", "slices"),
		"spec.slices > 1 is not supported while any role has scaling.mode: External (alpha restriction)"))
}

// checkPlacement requires a topology, and refuses a second rule about its domains.
func checkPlacement(set *dsv1.DisaggregatedSet) field.ErrorList {
	policy := ptr.Deref(set.Spec.PlacementPolicy, dsv1.PlacementPolicy{})
	if policy.Type == "" || policy.Type == dsv1.PlacementNone {
		return nil
	}
	path := field.NewPath("spec", "placementPolicy", "topology")
	faults := when(policy.Topology == "", field.Required(path, "topology is required when type is not None"))
	for _, why := range validation.IsQualifiedName(policy.Topology) {
		faults = append(faults, when(policy.Topology != "", field.Invalid(path, policy.Topology, "must be the key of a node label: "+why))...)
	}
	return append(faults, checkEach(set, func(role *dsv1.DisaggregatedRole, path *field.Path) (faults field.ErrorList) {
		for _, key := range []string{lwsv1.ExclusiveKeyAnnotationKey, lwsv1.SubGroupExclusiveKeyAnnotationKey} {
			faults = append(faults, when(hasAnnotation(role, key), field.Forbidden(path,
				fmt.Sprintf("the %q annotation must not be combined with a non-None spec.placementPolicy.type (%s)", key, policy.Type)))...)
		}
		return faults
	})...)
}

// hasAnnotation reports whether a role or a template of it has an annotation.
func hasAnnotation(role *dsv1.DisaggregatedRole, key string) bool {
	template := &role.Spec.LeaderWorkerTemplate
	return metav1.HasAnnotation(role.Metadata, key) || metav1.HasAnnotation(template.WorkerTemplate.ObjectMeta, key) ||
		template.LeaderTemplate != nil && metav1.HasAnnotation(template.LeaderTemplate.ObjectMeta, key)
}
