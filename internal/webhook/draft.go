package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	rule "lockstep.dev/lockstep/internal/lws/admission"
)

// patience is how long all dry runs of one request may take.
const patience = 2 * time.Second

// checkTemplates refuses what a write makes wrong in the templates. What the stored set, which may be nil, has wrong
// already is a warning, and so is what cannot be checked.
func (s Sets) checkTemplates(ctx context.Context, is, was *lwsv1.LeaderWorkerSet) admission.Response {
	if s.DryRun == nil || is.DeletionTimestamp != nil || was != nil && rule.SameTemplates(is, was) {
		return admission.Allowed("")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	faults, warnings, _ := s.dryRun(ctx, is)
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
	if len(faults) > 0 {
		return admission.Denied(strings.Join(faults, "; ")).WithWarnings(warnings...)
	}
	return admission.Allowed("").WithWarnings(warnings...)
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
