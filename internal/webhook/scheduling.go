package webhook

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/schedulingv1/workloadbuilder"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
)

// checkUnits returns what the scheduler's own rules refuse of spec.scheduling, such as a union without a member.
// A fault that the stored set has is none. was is nil for a new set.
func checkUnits(ctx context.Context, is, was *lwsv1.LeaderWorkerSet) (faults field.ErrorList) {
	if is.Spec.Scheduling == nil {
		return nil
	}
	for _, unit := range gang.UnitsOf(is) {
		faults = append(faults, unit.Builder(is, field.NewPath("spec", "scheduling")).Validate(ctx, workloadbuilder.ValidationInput{})...)
	}
	if was == nil {
		return faults
	}
	had := checkUnits(ctx, was, nil)
	return slices.DeleteFunc(faults, func(fault *field.Error) bool {
		return slices.ContainsFunc(had, func(h *field.Error) bool { return h.Error() == fault.Error() })
	})
}
