package webhook

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	rule "lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/lws/undo"
)

// Sets completes and validates LeaderWorkerSets.
type Sets struct {
	// Scheduling is what the operator can do for sets with spec.scheduling.
	Scheduling rule.Scheduling
	// Revisions reads the revisions of a set, by rising number. Only an undo reads them.
	Revisions func(context.Context, *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error)
	// DryRun creates an object and stores nothing. Without it, the templates of sets are not checked.
	DryRun func(context.Context, client.Object) error
}

func (s Sets) mutateSet(ctx context.Context, is, was *lwsv1.LeaderWorkerSet) error {
	after, err := undo.Requested(is, was, func(set *lwsv1.LeaderWorkerSet) ([]*appsv1.ControllerRevision, error) {
		return s.Revisions(ctx, set)
	})
	if err != nil {
		return err
	}
	rule.Default(after)
	*is = *after
	return nil
}
