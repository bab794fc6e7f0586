package lws

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/report"
)

// pass carries out plans. Both reconcilers go through it.
type pass struct {
	observe *lwscache.Observer
	memory  *lwscache.Memory
	act     *apply.Actor
	report  *report.Reporter
	now     func() time.Time
	// wakeSet reconciles a set soon.
	wakeSet func(client.Object)
}

// errand is the object that a plan is carried out for.
type errand struct {
	// It is the set, or a pod of a group whose set is gone.
	set client.Object
	// waiting is the UID of the object that waits for what the plan waits for.
	waiting types.UID
	// leader names the leader of the group, or is empty for the set itself.
	leader string
}

// carryOut writes what was decided, in order.
//
// A write that finds the cluster changed since the read ends the pass: what follows it was
// decided from an old snapshot. A write that no other write waits for is retried later when it
// fails, and ends only what is to come after all others.
func (p *pass) carryOut(ctx context.Context, e errand, plan lws.Plan, now time.Time) (ctrl.Result, error) {
	var undone []error
	var held heldPVCs
	actor := p.act.Pass()
	for _, run := range apply.Batch(plan.Actions) {
		if comesAfter(run[0]) && len(undone) > 0 {
			break
		}
		err := apply.SlowStart(ctx, run, func(ctx context.Context, a action.Action) error {
			return held.sift(a, p.do(ctx, actor, e.set, a))
		})
		_, writesStatus := run[0].(action.WriteStatus)
		switch {
		case err == nil:
		case errors.Is(err, apply.ErrStale):
			return ctrl.Result{RequeueAfter: readAgain}, nil
		case apart(run[0]):
			undone = append(undone, each(err)...)
		case writesStatus:
			return ctrl.Result{}, err
		default:
			return p.end(ctx, e, undone, err)
		}
	}
	plan.Waits = append(slices.Clone(plan.Waits), held.waits...)
	p.report.Wait(e.set, e.waiting, plan.Waits...)
	if len(undone) > 0 {
		plan.Waits = slices.DeleteFunc(plan.Waits, func(w lws.Wait) bool { return w.Followup })
	}
	result, err := p.end(ctx, e, undone, nil)
	if err != nil {
		return ctrl.Result{}, err
	}
	result.RequeueAfter = sooner(result.RequeueAfter, plan.Next(now))
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

// apart reports whether no other write of a plan waits for this one: a deletion, a Service, or
// the object of a gang scheduler, without which the group is not placed as a gang.
func apart(a action.Action) bool {
	kind := a.Target().Kind
	return deletes(a) || kind == identity.KindPodGroup || kind == identity.KindService
}

// comesAfter reports whether everything before an action is to be done first.
func comesAfter(a action.Action) bool {
	deletion, is := a.(action.Delete)
	return is && deletion.After
}

// do carries out one action, reports it and remembers it.
func (p *pass) do(ctx context.Context, actor *apply.Actor, owner client.Object, a action.Action) error {
	if deletes(a) && p.memory.WasDeleted(a.Target().UID, p.now()) {
		return nil // the cache is late to show it; another delete would be refused
	}
	_, err := actor.Do(ctx, a)
	if errors.Is(err, apply.ErrGone) {
		return nil
	}
	p.report.Tell(ctx, owner, a, err)
	var taken *apply.TakenError
	switch {
	case err == nil:
		p.remember(owner, a)
		return nil
	case errors.As(err, &taken):
		p.observe.Taken(taken.Name)
		p.wakeSet(owner) // the set reports foreign objects under its groups' names
		return apply.ErrStale
	case errors.Is(err, apply.ErrStale):
		return apply.ErrStale
	}
	return &lws.WriteError{Verb: a.About().Verb, Target: a.Target(), Err: err}
}

func (p *pass) remember(owner client.Object, a action.Action) {
	switch a := a.(type) {
	case action.Delete:
		p.memory.Deleted(a.Object.UID, p.now())
	case action.WriteStatus:
		p.memory.StatusWritten(owner, p.now())
	case action.Create:
		p.rememberAccepted(owner, a.Object)
	case action.Apply:
		p.rememberAccepted(owner, a.Object)
	}
}

// rememberAccepted records that the API server took the set's leader StatefulSet.
func (p *pass) rememberAccepted(owner client.Object, object action.Object) {
	if object.GetName() == owner.GetName() && object.GetAnnotations()[lws.AppliedAnnotationKey] != "" {
		p.memory.Accepted(owner)
	}
}

// end ends a pass with the errors of writes that no other write waited for, and with the error
// that stopped it, if any. The set reports what the API server refuses, and the write is retried
// ever more slowly. Any other error is retried at once.
func (p *pass) end(ctx context.Context, e errand, undone []error, stopped error) (ctrl.Result, error) {
	if _, stands := e.set.(*lwsv1.LeaderWorkerSet); !stands { // it is gone, and no status can say what is refused
		return ctrl.Result{}, errors.Join(append(undone, stopped)...)
	}
	log := logr.FromContextOrDiscard(ctx)
	if stopped != nil {
		if refusal, is := lws.RefusalOf(stopped, p.now()); is && e.leader == "" {
			p.memory.Refused(e.set, refusal)
			log.Error(stopped, "refused")
			return ctrl.Result{RequeueAfter: readAgain}, nil // the next pass writes the status
		}
		undone = append(undone, stopped)
	}
	refusals, errs := p.refusals(undone)
	if len(errs) > 0 && len(refusals) == 0 {
		return ctrl.Result{}, errors.Join(errs...) // a write that was refused before may not have been tried
	}
	going, news := p.memory.RefusedTo(e.set, e.leader, refusals)
	var result ctrl.Result
	for _, refusal := range going {
		result.RequeueAfter = sooner(result.RequeueAfter, refusal.Again().Sub(p.now()))
		if news {
			log.Info("refused", "refusal", refusal.Sentence)
		}
	}
	if news && (e.leader != "" || len(going) == 0) { // a set that is refused something is requeued above
		p.wakeSet(e.set)
	}
	if len(errs) > 0 {
		return ctrl.Result{}, errors.Join(errs...)
	}
	return result, nil
}

// refusals parts refusals, in a stable order, from errors that pass by themselves.
func (p *pass) refusals(undone []error) (refusals []lws.Refusal, errs []error) {
	for _, err := range undone {
		if refusal, is := lws.RefusalOf(err, p.now()); is {
			refusals = append(refusals, refusal)
			continue
		}
		errs = append(errs, err)
	}
	slices.SortStableFunc(refusals, func(a, b lws.Refusal) int { return cmp.Compare(a.Sentence, b.Sentence) })
	return refusals, errs
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
