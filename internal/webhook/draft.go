package webhook

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	rule "lockstep.dev/lockstep/internal/lws/admission"
)

// patience is how long all dry runs of one request may take.
const patience = 2 * time.Second

// checkTemplates returns what a write makes wrong in the templates. What the stored set, which may be nil, has wrong
// already is a warning, and so is what cannot be checked.
func (s Sets) checkTemplates(ctx context.Context, is, was *lwsv1.LeaderWorkerSet) (faults, warnings []string) {
	if s.DryRun == nil || is.DeletionTimestamp != nil || was != nil && rule.SameTemplates(is, was) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	faults, warnings, _ = s.dryRun(ctx, is)
	if len(faults) == 0 || was == nil {
		return faults, warnings
	}
	had, _, isJudged := s.dryRun(ctx, was)
	return slices.DeleteFunc(faults, func(fault string) bool {
		isStored := !isJudged || slices.Contains(had, fault)
		if isStored {
			warnings = append(warnings, fmt.Sprintf("%.250s", fault)) // the API server cuts longer ones
		}
		return isStored
	}), warnings
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
