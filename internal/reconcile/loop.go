// Package reconcile is the loop of sets and groups: read, decide, read what the decision needs, decide again, and
// carry the plan out.
//
// It knows the order of writes and what a refused one means. It refuses to know which events cause a reconcile, what
// is decided, and how an object is read or written. Tests of internal/lws run it with a clock and writes of their own.
package reconcile

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/internal/turn"
)

const (
	// ReadAgain is how soon a reconcile that found the cluster changed runs again, unless an
	// event comes first.
	ReadAgain = 50 * time.Millisecond
	// readFor bounds one read: it may wait for the cache to show our own writes.
	readFor = 10 * time.Second
)

// Writer writes the actions of a plan. An error says what the API server refused, as those of apply.Actor do.
type Writer interface {
	Do(context.Context, action.Action) (version string, err error)
}

// Loop reconciles sets and groups. It is safe for concurrent use.
type Loop struct {
	Observer *lwscache.Observer
	Memory   *lwscache.Memory
	// Writer returns what writes in one reconcile.
	Writer func() Writer
	// Together calls a function for each number below n. Such writes do not depend on each other.
	Together func(n int, do func(i int))
	Report   *report.Reporter
	Now      func() time.Time
	// WakeSet reconciles a set soon.
	WakeSet func(client.Object)
	// Failures is the pace at which failed groups of a namespace are recreated.
	Failures *turn.Pace
}

// Set reads a set, decides about it, and writes what was decided. It returns what it read, or no set if it read none.
func (l *Loop) Set(ctx context.Context, req ctrl.Request) (lws.SetSnapshot, ctrl.Result, error) {
	now := l.Now()
	reading, cancel := context.WithTimeout(ctx, readFor)
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
		result, err := undecided(req, err)
		return lws.SetSnapshot{}, result, err
	}
	result, err := l.CarryOut(ctx, Request{Object: w.Set, Waiting: w.Set.UID}, plan)
	return w, result, err
}

// Group reads a group, keyed by the leader's name, decides about it, and writes what was decided: one reconcile
// decides about a failure and deletes the group.
func (l *Loop) Group(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	now := l.Now()
	reading, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	var plan lws.Plan
	w, err := l.Observer.Group(reading, req.NamespacedName, now)
	if err == nil {
		plan, err = PlanGroup(reading, l.Observer, &w)
	}
	l.Report.Decided(report.OfGroup, l.Now().Sub(now))
	if err != nil {
		return undecided(req, err)
	}
	request := Request{Waiting: types.UID(req.Name), Leader: req.Name}
	if w.Leader != nil {
		request.Waiting = w.Leader.UID
	}
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
			l.WakeSet(w.Set)
		}
	case len(plan.Actions) == 0:
		return ctrl.Result{}, nil // garbage collection does the rest
	default: // the set is gone: its pods are what is left to report about
		request.Object = slices.Concat(w.Kept, []*corev1.Pod{w.Former})[0]
	}
	return l.CarryOut(ctx, request, plan)
}

// Logs reads the logs of a group that is recreated, and writes their ends onto the leader.
func (l *Loop) Logs(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	set, plan, err := l.Observer.LogPlan(ctx, req.NamespacedName)
	for _, a := range plan.Actions {
		err = errors.Join(err, l.do(ctx, l.Writer(), set, a))
	}
	if err == nil {
		return ctrl.Result{}, nil
	}
	return undecided(req, err)
}

// concernsSet reports whether a group found a conflict or a StatefulSet without pods that its set does not report yet:
// both come without an event. A set that reports the conflict reads again by itself.
func concernsSet(w lws.GroupSnapshot, plan lws.Plan) bool {
	told, _ := condition.Of(w.Set.Status.Conditions, string(lwsv1.LeaderWorkerSetProgressing))
	hasConflict := slices.ContainsFunc(plan.Waits, func(w lws.Wait) bool { return w.Code == lws.CodeNameConflict })
	return hasConflict && !condition.IsTrue(w.Set.Status.Conditions, lws.CodeNameConflict) || !w.Stalled.IsZero() && told.Reason != lws.CodeFailedCreate
}

// undecided turns an error before anything was decided into the result of a reconcile.
func undecided(req ctrl.Request, err error) (ctrl.Result, error) {
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil // garbage collection does the rest
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, apply.ErrStale):
		return ctrl.Result{RequeueAfter: ReadAgain}, nil // our own last write is not visible yet, or another one came
	}
	return ctrl.Result{}, fmt.Errorf("observe %q: %w", req, err)
}
