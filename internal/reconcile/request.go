package reconcile

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// Request is the object that a plan is carried out for.
type Request struct {
	// Object is the set, or a pod of a group whose set is gone.
	Object client.Object
	// Waiting is the UID of the object that waits for what the plan waits for.
	Waiting types.UID
	// Leader names the leader of the group, or is empty for the set itself.
	Leader string
}

// CarryOut writes what was decided, in order.
//
// A write that finds the cluster changed since the read ends the reconcile: what follows it was
// decided from an old snapshot. A write that no other write waits for is retried later when it
// fails, and ends only what is to come after all others.
func (l *Loop) CarryOut(ctx context.Context, r Request, plan lws.Plan) (ctrl.Result, error) {
	var undone []error
	var held heldPVCs
	writer := l.Writer()
	for _, run := range apply.Batch(plan.Actions) {
		if comesAfter(run[0]) && len(undone) > 0 {
			break
		}
		err := apply.SlowStart(ctx, run, l.Together, func(ctx context.Context, a action.Action) error {
			if err := l.do(ctx, writer, r.Object, a); err != nil {
				return held.sift(a, err)
			}
			return nil
		})
		_, writesStatus := run[0].(action.WriteStatus)
		switch {
		case err == nil:
		case errors.Is(err, apply.ErrStale):
			return ctrl.Result{RequeueAfter: ReadAgain}, nil
		case isIndependent(run[0]), l.isRefusedBudget(run[0], err):
			undone = append(undone, each(err)...)
		case writesStatus:
			return ctrl.Result{}, err
		default:
			return l.finish(ctx, r, undone, err)
		}
	}
	plan.Waits = append(slices.Clone(plan.Waits), held.waits...)
	l.Report.Wait(r.Object, r.Waiting, plan.Waits...)
	if len(undone) == 0 && !l.Memory.HasRefused(r.Object, r.Leader) {
		return ctrl.Result{RequeueAfter: plan.Next(l.Now())}, nil
	}
	if len(undone) > 0 {
		plan.Waits = slices.DeleteFunc(plan.Waits, func(w lws.Wait) bool { return w.Followup })
	}
	result, err := l.finish(ctx, r, undone, nil)
	if err != nil {
		return ctrl.Result{}, err
	}
	result.RequeueAfter = sooner(result.RequeueAfter, plan.Next(l.Now()))
	return result, nil
}

// heldPVCs collects the answers of the API server to deletions of PVCs that it forbids: a
// hold, or a missing right.
type heldPVCs struct {
	mu    sync.Mutex
	waits []lws.Wait
}

// sift turns an error that forbids the deletion of a PVC into a wait: the plan retries the
// deletion, and no other write waits for it.
func (h *heldPVCs) sift(a action.Action, err error) error {
	if !deletes(a) || a.Target().Kind != identity.KindPersistentVolumeClaim || !apierrors.IsForbidden(err) {
		return err
	}
	pvc := a.Target()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits = append(h.waits, lws.Wait{
		Reason: action.Reason{Code: lws.CodeScaledAway, Sentence: err.Error()},
		Tell:   &action.Event{Warning: true, Reason: "FailedDelete", Action: "Delete", Note: err.Error(), Related: &pvc},
	})
	return nil
}

func deletes(a action.Action) bool {
	_, is := a.(action.Delete)
	return is
}

// isIndependent reports whether no other write of a plan waits for this one: a deletion, a Service, or
// the object of a gang scheduler, without which the group is not placed as a gang.
func isIndependent(a action.Action) bool {
	kind := a.Target().Kind
	return deletes(a) || kind == identity.KindPodGroup || kind == identity.KindService
}

// isRefusedBudget reports whether the API server refuses a PodDisruptionBudget. After another error, what follows waits.
func (l *Loop) isRefusedBudget(a action.Action, err error) bool {
	_, isRefused := lws.RefusalOf(err, l.Now())
	return isRefused && a.Target().Kind == identity.KindPodDisruptionBudget
}

// comesAfter reports whether everything before an action is to be done first.
func comesAfter(a action.Action) bool {
	deletion, is := a.(action.Delete)
	return is && deletion.After
}

// do carries out one action, reports it and remembers it.
func (l *Loop) do(ctx context.Context, writer Writer, owner client.Object, a action.Action) error {
	if deletes(a) && l.Memory.WasDeleted(a.Target().UID, l.Now()) {
		return nil // the cache is late to show it; another delete would be refused
	}
	_, err := writer.Do(ctx, a)
	if errors.Is(err, apply.ErrGone) {
		return nil
	}
	l.Report.Tell(ctx, owner, a, err)
	var taken *apply.TakenError
	switch {
	case err == nil:
		l.remember(owner, a)
		return nil
	case errors.As(err, &taken):
		l.Memory.Taken(taken.Name)
		l.WakeSet(owner) // the set reports foreign objects under its groups' names
		return apply.ErrStale
	case errors.Is(err, apply.ErrStale):
		return apply.ErrStale
	}
	return &lws.WriteError{Verb: a.About().Verb, Target: a.Target(), Err: err}
}

func (l *Loop) remember(owner client.Object, a action.Action) {
	switch a := a.(type) {
	case action.Delete:
		l.Memory.Deleted(a.Object.UID, l.Now())
	case action.WriteStatus:
		l.Memory.StatusWritten(owner, l.Now())
	case action.Create:
		l.rememberAccepted(owner, a.Object)
	case action.Apply:
		l.rememberAccepted(owner, a.Object)
	}
}

// rememberAccepted records that the API server took the set's leader StatefulSet.
func (l *Loop) rememberAccepted(owner client.Object, object action.Object) {
	if object.GetName() == owner.GetName() && object.GetAnnotations()[lws.AppliedAnnotationKey] != "" {
		l.Memory.Accepted(owner)
	}
}

// each returns the errors that were joined to one. It unwraps the outermost alone: the
// error of one write stays one.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// sooner is the shorter of two waits, where zero is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
