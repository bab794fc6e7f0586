// Package lws is the loop of sets and groups.
//
// It knows what a reconcile reads and decides, and in which order. It refuses to know which events cause one. Tests of
// internal/lws run it with a clock and writes of their own.
package lws

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws"
	lwsgroup "lockstep.dev/lockstep/internal/lws/group"
	lwsset "lockstep.dev/lockstep/internal/lws/set"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/reconcile"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/internal/turn"
)

// Loop reconciles sets and groups. It is safe for concurrent use.
type Loop struct {
	reconcile.Executor
	Observer *lwscache.Observer
	// Failures is the pace at which failed groups of a namespace are recreated.
	Failures *turn.Pace
}

// Set reads a set, decides about it, and writes what was decided. It returns what it read, or no set if it read none.
func (l *Loop) Set(ctx context.Context, req ctrl.Request) (lws.SetSnapshot, ctrl.Result, error) {
	now := l.Now()
	reading, cancel := context.WithTimeout(ctx, reconcile.ReadFor)
	defer cancel()
	var plan lws.Plan
	w, err := l.Observer.Set(reading, req.NamespacedName, now)
	if err == nil {
		plan, err = PlanSet(reading, l.Observer, &w)
	}
	l.Report.Decided(report.OfSet, l.Now().Sub(now))
	if err == nil || apierrors.IsNotFound(err) {
		l.Report.Stands(req.NamespacedName, w.Set, plan)
	}
	if err != nil {
		result, err := reconcile.Undecided(req, err)
		return lws.SetSnapshot{}, result, err
	}
	result, err := l.CarryOut(ctx, reconcile.Request{Object: w.Set, Waiting: w.Set.UID}, plan.Plan)
	return w, result, err
}

// Group reads a group, keyed by the leader's name, decides about it, and writes what was decided: one reconcile
// decides about a failure and deletes the group.
func (l *Loop) Group(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	now := l.Now()
	reading, cancel := context.WithTimeout(ctx, reconcile.ReadFor)
	defer cancel()
	var plan lws.Plan
	w, err := l.Observer.Group(reading, req.NamespacedName, now)
	if err == nil {
		plan, err = PlanGroup(reading, l.Observer, &w)
	}
	l.Report.Decided(report.OfGroup, l.Now().Sub(now))
	if err != nil {
		return reconcile.Undecided(req, err)
	}
	request := reconcile.Request{Waiting: types.UID(req.Name), Part: req.Name}
	if w.Leader != nil {
		request.Waiting = w.Leader.UID
	}
	deletes := func(a action.Action) bool { _, is := a.(action.Delete); return is }
	recreates := func(a action.Action) bool {
		return deletes(a) && w.Leader != nil && a.Target().UID == w.Leader.UID && a.About().Because.Code == lws.CodeRestart
	}
	if !slices.ContainsFunc(plan.Actions, recreates) {
		l.Failures.Leave(req.NamespacedName)
	} else if in := l.Failures.In(req.NamespacedName); in > 0 { // that the group failed is written at once
		plan.Actions = slices.DeleteFunc(plan.Actions, deletes)
		plan.Await(l.Now().Add(in), lws.CodeRestart, fmt.Sprintf("leader %s waits for its turn among failed groups", req.Name))
	}
	switch {
	case w.Set != nil:
		request.Object = w.Set
		if concernsSet(w, plan) {
			l.Wake(w.Set)
		}
	case len(plan.Actions) == 0:
		return ctrl.Result{}, nil // garbage collection does the rest
	default: // the set is gone: its pods are what is left to report about
		request.Object, request.IsLeft = slices.Concat(w.Kept, []*corev1.Pod{w.Former})[0], true
	}
	return l.CarryOut(ctx, request, plan.Plan)
}

// Logs reads the logs of a group that is recreated, and writes their ends onto the leader.
func (l *Loop) Logs(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	set, plan, err := l.Observer.LogPlan(ctx, req.NamespacedName)
	for _, a := range plan.Actions {
		err = errors.Join(err, l.Do(ctx, l.Writer(), set, a))
	}
	if err == nil {
		return ctrl.Result{}, nil
	}
	return reconcile.Undecided(req, err)
}

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

// concernsSet reports whether a group found a conflict or a StatefulSet without pods that its set does not report yet:
// both come without an event. A set that reports the conflict reads again by itself.
func concernsSet(w lws.GroupSnapshot, plan lws.Plan) bool {
	told, _ := condition.Of(w.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	hasConflict := slices.ContainsFunc(plan.Waits, func(w lws.Wait) bool { return w.Code == lws.CodeNameConflict })
	return hasConflict && !condition.IsTrue(w.Set.Status.Conditions, lws.CodeNameConflict) || !w.Stalled.IsZero() && told.Reason != lws.CodeFailedCreate
}
