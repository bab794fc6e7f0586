package webhook

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/schedulingv1/workloadbuilder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	rule "lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/lws/undo"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Sets completes and validates LeaderWorkerSets, and validates what makes them.
type Sets struct {
	// Scheduling is what the operator can do for sets with spec.scheduling.
	Scheduling rule.Scheduling
	// Revisions reads the revisions of a set, by rising number. Only an undo reads them.
	Revisions func(context.Context, *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error)
	// DryRun creates an object and stores nothing. Without it, the templates of sets are not checked.
	DryRun func(context.Context, client.Object) error
	// ProgressDeadline is the value of the annotation that a new set without it is given, or empty.
	ProgressDeadline string
}

func (s Sets) mutateSet(ctx context.Context, is, was *lwsv1.LeaderWorkerSet) error {
	after, err := undo.Requested(is, was, func(set *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error) {
		return s.Revisions(ctx, set)
	})
	if err != nil {
		return err
	}
	rule.Default(after)
	if _, isGiven := after.Annotations[workload.ProgressDeadlineAnnotationKey]; !isGiven && s.ProgressDeadline != "" && was.Name == "" {
		after.Annotations = labels.Merge(after.Annotations, labels.Set{workload.ProgressDeadlineAnnotationKey: s.ProgressDeadline})
	}
	*is = *after
	return nil
}

// judge returns the faults that a write of a set makes. was is nil for a new set.
func (s Sets) judge(ctx context.Context, is, was *lwsv1.LeaderWorkerSet) (faults field.ErrorList) {
	if was == nil {
		faults = s.Scheduling.ValidateCreate(is)
	} else {
		faults = s.Scheduling.ValidateUpdate(is, was)
	}
	if len(faults) == 0 && s.Scheduling.IsEnabled {
		faults = checkUnits(ctx, is, was)
	}
	return faults
}

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

// patience is how long all dry runs of one request may take.
const patience = 2 * time.Second

// checkTemplates returns what a write makes wrong in the templates. What the stored set, which may be nil, has wrong
// already is a warning, and so is what cannot be checked.
func (s Sets) checkTemplates(ctx context.Context, is, was *lwsv1.LeaderWorkerSet) (faults, warnings []string) {
	if s.DryRun == nil || is.DeletionTimestamp != nil || was != nil && rule.SameTemplates(is, was) {
		return nil, nil
	}
	faults, warnings, _ = s.dryRun(ctx, is)
	if len(faults) > 0 && was != nil {
		had, _, isJudged := s.dryRun(ctx, was)
		isStored := func(fault string) bool { return !isJudged || slices.Contains(had, fault) }
		for _, fault := range faults {
			if isStored(fault) {
				warnings = append(warnings, fmt.Sprintf("%.250s", fault)) // the API server cuts longer ones
			}
		}
		faults = slices.DeleteFunc(faults, isStored)
	}
	return faults, warnings
}

// dryRun returns the faults of the templates, a warning of each other answer, and whether all templates were judged: quotas
// and policies come after that.
func (s Sets) dryRun(ctx context.Context, set *lwsv1.LeaderWorkerSet) (faults, warnings []string, isJudged bool) {
	isJudged = true
	for _, draft := range rule.Drafts(set) {
		err := s.DryRun(ctx, draft.Object)
		found := draft.Faults(err)
		faults = append(faults, found...)
		if err != nil && len(found) == 0 {
			isJudged = isJudged && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err))
			warnings = append(warnings, fmt.Sprintf("%.250s", "spec.leaderWorkerTemplate: not checked in a dry run: "+err.Error()))
		}
	}
	slices.Sort(faults)
	return slices.Compact(faults), warnings, isJudged
}
