package webhook

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	disaggregated "lockstep.dev/lockstep/internal/disaggregated/admission"
	rule "lockstep.dev/lockstep/internal/lws/admission"
)

// judgeRoles returns the faults of a DisaggregatedSet: those of the contract, and those beyond it that a write makes. One
// that is being deleted makes none, and must lose its finalizers.
func (s Sets) judgeRoles(ctx context.Context, is, was *dsv1.DisaggregatedSet) field.ErrorList {
	if is.DeletionTimestamp != nil {
		return nil
	}
	faults := disaggregated.Validate(is, func(role string, set *lwsv1.LeaderWorkerSet) field.ErrorList {
		rule.Default(set)
		faults, had := s.judge(ctx, set, nil), roleSet(was, role)
		if had == nil || len(faults) == 0 {
			return faults
		}
		return rule.Made(faults, s.judge(ctx, had, nil))
	})
	return rule.Made(faults, disaggregated.CheckAnnotations(new(ptr.Deref(was, dsv1.DisaggregatedSet{}))))
}

// checkRoles does for all roles what checkTemplates does for a set.
func (s Sets) checkRoles(ctx context.Context, is, was *dsv1.DisaggregatedSet) (faults, warnings []string) {
	for i := range is.Spec.Roles {
		name, path := is.Spec.Roles[i].Name, disaggregated.RolesPath.Index(i)
		wrong, unclear := s.checkTemplates(ctx, roleSet(is, name), roleSet(was, name))
		for _, fault := range wrong {
			faults = append(faults, fmt.Sprintf("%s.%s", path, fault))
		}
		for _, why := range unclear {
			warnings = append(warnings, fmt.Sprintf("%s.%.230s", path, why))
		}
	}
	return faults, warnings
}

// roleSet returns the LeaderWorkerSet that a role becomes, or nil if a set, which may be nil, has no role of that name.
func roleSet(of *dsv1.DisaggregatedSet, name string) *lwsv1.LeaderWorkerSet {
	for _, role := range ptr.Deref(of, dsv1.DisaggregatedSet{}).Spec.Roles {
		if role.Name == name {
			set := disaggregated.RoleSet(of, &role)
			rule.Default(set)
			return set
		}
	}
	return nil
}
