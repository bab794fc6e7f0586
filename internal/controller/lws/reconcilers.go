package lws

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// setReconciler keeps sets what they should be, keyed by LeaderWorkerSet.
type setReconciler struct {
	*pass
	pace *pace
}

// Reconcile looks once, decides once, and writes only what was decided.
func (r *setReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	now := r.now()
	look, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	world, plan, err := r.observe.SetPlan(look, req.NamespacedName, now)
	if err != nil {
		r.pace.forget(req.NamespacedName)
		return unseen(req, err)
	}
	defer r.pace.looked(req.NamespacedName, world)
	return r.carryOut(ctx, errand{set: world.Set, waiting: world.Set.UID}, plan, now)
}

// groupReconciler keeps groups what they should be, keyed by the leader's name.
type groupReconciler struct{ *pass }

// Reconcile reads a group, decides about it, and writes what was decided: a failure is
// decided and answered in one pass.
func (r *groupReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	now := r.now()
	look, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	world, plan, err := r.observe.GroupPlan(look, req.NamespacedName, now)
	if err != nil {
		return unseen(req, err)
	}
	waiting := types.UID(req.Name)
	if world.Leader != nil {
		waiting = world.Leader.UID
	}
	r.tellConflict(world.Set, plan)
	return r.carryOut(ctx, errand{set: world.Set, waiting: waiting, leader: req.Name}, plan, now)
}

// tellConflict has the set look at a conflict that its group found: what is not
// ours by labels comes without an event. A set that tells of one already looks
// again by itself.
func (r *groupReconciler) tellConflict(set *lwsv1.LeaderWorkerSet, plan lws.Plan) {
	conflict := func(w lws.Wait) bool { return w.Code == lws.CodeNameConflict }
	if slices.ContainsFunc(plan.Waits, conflict) && !condition.IsTrue(set.Status.Conditions, lws.CodeNameConflict) {
		r.wakeSet(set)
	}
}

func isStatefulSet(a action.Action) bool {
	return a.Target().Kind == identity.KindStatefulSet
}
