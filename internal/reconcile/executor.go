// Package reconcile carries plans out.
//
// It knows the order of writes and what a refused one means. It refuses to know what is decided and why, and how an object
// is read or written. The packages below it are the loops of the wings: read, decide, read what the decision needs, decide
// again, and carry the plan out.
package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/memory"
	"lockstep.dev/lockstep/internal/report"
)

// ReadFor bounds one read: it may wait for the cache to show our own writes.
const ReadFor = 10 * time.Second

// ReadAgain is the result of a reconcile that found the cluster changed. It runs again with the next event, or ever later:
// the cache of an API server that starts may be late for a minute.
var ReadAgain = ctrl.Result{Requeue: true} //nolint:staticcheck // RequeueAfter has no rate limit

// Writer writes the actions of a plan. An error says what the API server refused, as those of apply.Actor do.
type Writer interface {
	Do(context.Context, action.Action) (version string, err error)
}

// Executor carries out the plans of a wing. It is safe for concurrent use.
type Executor struct {
	Memory *memory.Memory
	// Writer returns what writes in one reconcile.
	Writer func() Writer
	// Together calls a function for each number below n. Such writes do not depend on each other.
	Together func(n int, do func(i int))
	Report   *report.Reporter
	Now      func() time.Time
	// Wake reconciles an object soon.
	Wake func(client.Object)
}

// Request is the object that a plan is carried out for.
type Request struct {
	Object client.Object
	// IsApart is set where no write of the plan waits for another.
	IsApart bool
	// IsLeft is set where the owner of Object is gone: no status can say what is refused.
	IsLeft bool
	// Waiting is the UID of the object that waits for what the plan waits for.
	Waiting types.UID
	// Part names the part of the object that the plan is for, or is empty for the object itself.
	Part string
}

// Undecided turns an error before anything was decided into the result of a reconcile.
func Undecided(req ctrl.Request, err error) (ctrl.Result, error) {
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil // garbage collection does the rest
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, apply.ErrStale):
		return ReadAgain, nil // our own last write is not visible yet, or another one came
	}
	return ctrl.Result{}, fmt.Errorf("observe %q: %w", req, err)
}

// CarryOut writes what was decided, in order.
//
// A write that finds the cluster changed since the read ends the reconcile: what follows it was
// decided from an old snapshot. A write that no other write waits for is retried later when it
// fails, and ends only what is to come after all others.
func (e *Executor) CarryOut(ctx context.Context, r Request, plan action.Plan) (ctrl.Result, error) {
	var undone []error
	var held heldPVCs
	writer := e.Writer()
	for _, run := range apply.Batch(plan.Actions) {
		if comesAfter(run[0]) && len(undone) > 0 {
			break
		}
		err := apply.SlowStart(ctx, run, e.Together, func(ctx context.Context, a action.Action) error {
			if err := e.Do(ctx, writer, r.Object, a); err != nil {
				return held.sift(a, err)
			}
			return nil
		})
		_, writesStatus := run[0].(action.WriteStatus)
		switch {
		case err == nil:
		case errors.Is(err, apply.ErrStale):
			return ReadAgain, nil
		case r.IsApart, isIndependent(run[0]), e.isRefusedBudget(run[0], err):
			undone = append(undone, each(err)...)
		case writesStatus:
			return ctrl.Result{}, err
		default:
			return e.finish(ctx, r, undone, err)
		}
	}
	plan.Waits = append(slices.Clone(plan.Waits), held.waits...)
	e.Report.Wait(r.Object, r.Waiting, plan.Waits...)
	if len(undone) == 0 && !e.Memory.HasRefused(r.Object, r.Part) {
		return ctrl.Result{RequeueAfter: plan.Next(e.Now())}, nil
	}
	if len(undone) > 0 {
		plan.Waits = slices.DeleteFunc(plan.Waits, func(w action.Wait) bool { return w.Followup })
	}
	result, err := e.finish(ctx, r, undone, nil)
	if err != nil {
		return ctrl.Result{}, err
	}
	result.RequeueAfter = sooner(result.RequeueAfter, plan.Next(e.Now()))
	return result, nil
}

// finish turns the errors of independent writes, and the error that stopped the reconcile, if any, into a result or a
// retry. The object reports what the API server refuses, and the write is retried ever more slowly. Any other error is
// retried at once.
func (e *Executor) finish(ctx context.Context, r Request, undone []error, stopped error) (ctrl.Result, error) {
	if r.IsLeft {
		return ctrl.Result{}, errors.Join(append(undone, stopped)...)
	}
	log := logr.FromContextOrDiscard(ctx)
	if stopped != nil {
		if refusal, is := action.RefusalOf(stopped, e.Now()); is && r.Part == "" {
			e.Memory.Refused(r.Object, refusal)
			log.Error(stopped, "refused")
			return ReadAgain, nil // the next reconcile writes the status
		}
		undone = append(undone, stopped)
	}
	refusals, errs := e.refusals(undone)
	if len(errs) > 0 && len(refusals) == 0 {
		return ctrl.Result{}, errors.Join(errs...) // a write that was refused before may not have been tried
	}
	going, news := e.Memory.RefusedTo(r.Object, r.Part, refusals)
	var result ctrl.Result
	for _, refusal := range going {
		result.RequeueAfter = sooner(result.RequeueAfter, refusal.Again().Sub(e.Now()))
		if news {
			log.Info("refused", "refusal", refusal.Sentence)
		}
	}
	if news && (r.Part != "" || len(going) == 0) { // an object that is refused something is requeued above
		e.Wake(r.Object)
	}
	if len(errs) > 0 {
		return ctrl.Result{}, errors.Join(errs...)
	}
	return result, nil
}

// refusals parts refusals, in a stable order, from errors that pass by themselves.
func (e *Executor) refusals(undone []error) (refusals []action.Refusal, errs []error) {
	for _, err := range undone {
		if refusal, is := action.RefusalOf(err, e.Now()); is {
			refusals = append(refusals, refusal)
			continue
		}
		errs = append(errs, err)
	}
	slices.SortStableFunc(refusals, func(a, b action.Refusal) int { return cmp.Compare(a.Sentence, b.Sentence) })
	return refusals, errs
}

// heldPVCs collects the answers of the API server to deletions of PVCs that it forbids: a
// hold, or a missing right.
type heldPVCs struct {
	mu    sync.Mutex
	waits []action.Wait
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
	h.waits = append(h.waits, action.Wait{
		Reason: action.Because(a.About().Because.Code, err.Error()),
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
func (e *Executor) isRefusedBudget(a action.Action, err error) bool {
	_, isRefused := action.RefusalOf(err, e.Now())
	return isRefused && a.Target().Kind == identity.KindPodDisruptionBudget
}

// comesAfter reports whether everything before an action is to be done first.
func comesAfter(a action.Action) bool {
	deletion, is := a.(action.Delete)
	return is && deletion.After
}

// Do carries out one action, reports it and remembers it.
func (e *Executor) Do(ctx context.Context, writer Writer, owner client.Object, a action.Action) error {
	if deletes(a) && e.Memory.WasDeleted(a.Target().UID, e.Now()) {
		return nil // the cache is late to show it; another delete would be refused
	}
	_, err := writer.Do(ctx, a)
	if errors.Is(err, apply.ErrGone) {
		return nil
	}
	e.Report.Tell(ctx, owner, a, err)
	var taken *apply.TakenError
	switch {
	case err == nil:
		e.remember(owner, a)
		return nil
	case errors.As(err, &taken):
		e.Memory.Taken(taken.Name)
		e.Wake(owner) // it reports foreign objects under names of its parts
		return apply.ErrStale
	case errors.Is(err, apply.ErrStale):
		return apply.ErrStale
	}
	return &action.WriteError{Verb: a.About().Verb, Target: a.Target(), Err: err}
}

func (e *Executor) remember(owner client.Object, a action.Action) {
	switch a := a.(type) {
	case action.Delete:
		e.Memory.Deleted(a.Object.UID, e.Now())
	case action.WriteStatus:
		if a.Object.UID == owner.GetUID() {
			e.Memory.StatusWritten(owner, e.Now())
		}
	case action.Create:
		e.rememberAccepted(owner, a.Object)
	case action.Apply:
		e.rememberAccepted(owner, a.Object)
	}
}

// rememberAccepted records that the API server took what the spec of an owner leads to: the object that has its name, and
// records what is applied.
func (e *Executor) rememberAccepted(owner client.Object, object action.Object) {
	if object.GetName() == owner.GetName() && object.GetAnnotations()[action.AppliedAnnotationKey] != "" {
		e.Memory.Accepted(owner)
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
