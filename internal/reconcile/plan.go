package reconcile

import (
	"context"

	"lockstep.dev/lockstep/internal/lws"
	lwsgroup "lockstep.dev/lockstep/internal/lws/group"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lwscache"
)

// PlanSet decides about a set. It reads what the decision needs into the snapshot, and decides again.
func PlanSet(ctx context.Context, o *lwscache.Observer, w *lws.SetSnapshot) (lws.Plan, error) {
	return plan(ctx, w, lwsset.Decide, o.ReadForSet)
}

// PlanGroup is the same for a group.
func PlanGroup(ctx context.Context, o *lwscache.Observer, w *lws.GroupSnapshot) (lws.Plan, error) {
	return plan(ctx, w, lwsgroup.Decide, o.ReadForGroup)
}

// plan ends: no decision needs twice what was read for it.
func plan[W any](ctx context.Context, w *W, decide func(W) lws.Plan, read func(context.Context, lws.Need, *W) error) (lws.Plan, error) {
	for {
		plan := decide(*w)
		if plan.Needs == "" {
			return plan, nil
		}
		if err := read(ctx, plan.Needs, w); err != nil {
			return lws.Plan{}, err
		}
	}
}
