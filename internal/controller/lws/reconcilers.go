package lws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/report"
)

const (
	// readAgain is how soon a reconcile that found the cluster changed runs again, unless an
	// event comes first.
	readAgain = 50 * time.Millisecond
	// readFor bounds one read: it may wait for the cache to show our own writes.
	readFor = 10 * time.Second
)

// setReconciler reconciles LeaderWorkerSets.
type setReconciler struct {
	*pass
	pace *pace
}

// Reconcile reads a set, decides about it, and writes what was decided.
func (r *setReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	now := r.now()
	reading, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	snapshot, plan, err := r.observe.SetPlan(reading, req.NamespacedName, now)
	r.report.Decided(report.OfSet, r.now().Sub(now))
	if err == nil || apierrors.IsNotFound(err) {
		r.report.Stands(req.NamespacedName, snapshot.Set, plan)
	}
	if err != nil {
		r.pace.forget(req.NamespacedName)
		return unread(req, err)
	}
	defer r.pace.read(req.NamespacedName, snapshot)
	return r.carryOut(ctx, errand{set: snapshot.Set, waiting: snapshot.Set.UID}, plan, now)
}

// groupReconciler reconciles groups, keyed by the leader's name.
type groupReconciler struct{ *pass }

// Reconcile reads a group, decides about it, and writes what was decided: one reconcile decides
// about a failure and deletes the group.
func (r *groupReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	now := r.now()
	reading, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	snapshot, plan, err := r.observe.GroupPlan(reading, req.NamespacedName, now)
	r.report.Decided(report.OfGroup, r.now().Sub(now))
	if err != nil {
		return unread(req, err)
	}
	waiting := types.UID(req.Name)
	if snapshot.Leader != nil {
		waiting = snapshot.Leader.UID
	}
	if snapshot.Set == nil { // it is gone: its pods are what is left to report about
		pod := slices.Concat(snapshot.Kept, []*corev1.Pod{snapshot.Former})[0]
		return r.carryOut(ctx, errand{set: pod, waiting: waiting, leader: req.Name}, plan, now)
	}
	r.reportWaits(snapshot, plan)
	return r.carryOut(ctx, errand{set: snapshot.Set, waiting: waiting, leader: req.Name}, plan, now)
}

// reportWaits wakes the set for a conflict or a StatefulSet without pods that its group found: both come
// without an event. A set that reports the conflict reads again by itself.
func (r *groupReconciler) reportWaits(w lws.GroupSnapshot, plan lws.Plan) {
	told, _ := condition.Of(w.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	conflict := func(w lws.Wait) bool { return w.Code == lws.CodeNameConflict }
	if slices.ContainsFunc(plan.Waits, conflict) && !condition.IsTrue(w.Set.Status.Conditions, lws.CodeNameConflict) ||
		!w.Stalled.IsZero() && told.Reason != lws.CodeFailedCreate {
		r.wakeSet(w.Set)
	}
}

// unread turns the error of a read into the result of a reconcile.
func unread(req ctrl.Request, err error) (ctrl.Result, error) {
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil // garbage collection does the rest
	case errors.Is(err, context.DeadlineExceeded):
		return ctrl.Result{RequeueAfter: readAgain}, nil // our own last write is not visible yet
	}
	return ctrl.Result{}, fmt.Errorf("observe %q: %w", req, err)
}
