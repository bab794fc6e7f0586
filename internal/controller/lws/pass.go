package lws

import (
	"context"
	"errors"
	"fmt"
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
	set client.Object
	// waiting is the UID of the object that waits for what the plan waits for.
	waiting types.UID
	// leader names the leader of the group, or is empty for the set itself.
	leader string
	// snapshot is what was read of the set itself.
	snapshot lws.SetSnapshot
}

// carryOut writes what was decided, in order.
//
// A write that finds the cluster changed since the read ends the pass: what follows it was
// decided from an old snapshot. A write that no other write waits for is retried later when it
// fails, and ends only what is to come after all others.
func (p *pass) carryOut(ctx context.Context, e errand, plan lws.Plan, now time.Time) (ctrl.Result, error) {
	var undone []error
	var stopped error
	var held heldPVCs
	actor := p.act.Pass()
	for _, run := range apply.Batch(plan.Actions) {
		_, writesStatus := run[0].(action.WriteStatus)
		if comesAfter(run[0]) && len(undone) > 0 || stopped != nil {
			break
		}
		if writesStatus && len(refusals(undone)) > 0 {
			continue // it is decided again below
		}
		err := apply.SlowStart(ctx, run, func(ctx context.Context, a action.Action) error {
			return held.sift(a, p.do(ctx, actor, e.set, a))
		})
		switch {
		case err == nil:
		case errors.Is(err, apply.ErrStale):
			return ctrl.Result{RequeueAfter: readAgain}, nil
		case apart(run[0]):
			undone = append(undone, each(err)...)
		case writesStatus:
			return ctrl.Result{}, err
		default:
			stopped = err
		}
	}
	plan, told := p.tellRefusals(ctx, actor, e, plan, undone, stopped)
	plan.Waits = slices.Concat(plan.Waits, held.waits)
	p.report.Wait(e.set, e.waiting, plan.Waits...)
	if err := errors.Join(append(undone, stopped, told)...); err != nil {
		return ctrl.Result{}, err // retried ever more slowly
	}
	return ctrl.Result{RequeueAfter: plan.Next(now)}, nil
}

// tellRefusals writes what the API server refuses into the status of the set. A group has the set
// do so. It returns the plan that knows of the refusals.
func (p *pass) tellRefusals(ctx context.Context, actor *apply.Actor, e errand, plan lws.Plan, undone []error, stopped error) (lws.Plan, error) {
	refused, isSpec := refusals(undone), stopped != nil && lws.IsRefusal(stopped)
	if e.leader != "" {
		if isSpec {
			refused = append(refused, stopped.Error())
		}
		isTried := len(undone) == 0 && stopped == nil || len(refused) > 0
		if isTried && p.memory.RefusedTo(e.set, e.leader, refused) {
			p.wakeSet(e.set)
		}
		return plan, nil
	}
	if len(refused) == 0 && !isSpec {
		return plan, nil
	}
	if isSpec {
		e.snapshot.Refusal = stopped.Error()
	}
	e.snapshot.Refused = append(refused, e.snapshot.Refused...)
	plan = lws.DecideSet(e.snapshot)
	for _, a := range plan.Actions {
		if _, writesStatus := a.(action.WriteStatus); writesStatus {
			return plan, p.do(ctx, actor, e.set, a)
		}
	}
	return plan, nil
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
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits = append(h.waits, lws.Wait{
		Reason: action.Reason{Code: lws.CodeScaledAway, Sentence: err.Error()},
		Tell:   &action.Event{Warning: true, Reason: "FailedDelete", Action: "Delete", Note: err.Error()},
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
	return fmt.Errorf("%s %s: %w", a.About().Verb, a.Target(), err)
}

func (p *pass) remember(owner client.Object, a action.Action) {
	switch a := a.(type) {
	case action.Delete:
		p.memory.Deleted(a.Object.UID, p.now())
	case action.WriteStatus:
		p.memory.StatusWritten(owner, p.now())
	}
}

// refusals returns what the API server refuses, in a stable order.
func refusals(errs []error) (refused []string) {
	for _, err := range errs {
		if lws.IsRefusal(err) {
			refused = append(refused, err.Error())
		}
	}
	slices.Sort(refused)
	return refused
}

// each returns the errors that were joined to one. It unwraps the outermost alone: the
// error of one write stays one.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
