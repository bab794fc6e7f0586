package lws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/report"
)

const (
	// lookAgain is how soon a pass that found the cluster changed looks again,
	// unless an event comes first.
	lookAgain = 50 * time.Millisecond
	// lookFor bounds one look: it may wait for the cache to show our own writes.
	lookFor = 10 * time.Second
)

// pass carries out plans. Both reconcilers go through it.
type pass struct {
	observe *lwscache.Observer
	memory  *lwscache.Memory
	act     *apply.Actor
	narrate *report.Narrator
	now     func() time.Time
	// wakeSet has a set looked at again.
	wakeSet func(client.Object)
}

// unseen turns the errors of a look into the outcome of a pass.
func unseen(req ctrl.Request, err error) (ctrl.Result, error) {
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil // nothing owned, nothing owed: garbage collection does the rest
	case errors.Is(err, context.DeadlineExceeded):
		return ctrl.Result{RequeueAfter: lookAgain}, nil // our own last write is not visible yet
	}
	return ctrl.Result{}, fmt.Errorf("observe %q: %w", req, err)
}

// carryOut writes what was decided, in order.
//
// A write that finds the cluster changed since the look ends the pass: what
// follows it was decided for a world that no longer exists. A write that nothing
// else waits for is tried again later when it fails, and ends nothing but what is to
// come after all others.
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
		if errors.Is(err, apply.ErrStale) {
			return ctrl.Result{RequeueAfter: lookAgain}, nil
		}
		if err == nil {
			continue
		}
		if apart(run[0]) {
			undone = append(undone, each(err)...)
			continue
		}
		if _, status := run[0].(action.WriteStatus); status {
			return ctrl.Result{}, err
		}
		return p.end(ctx, e, undone, err)
	}
	plan.Waits = append(slices.Clone(plan.Waits), held.waits...)
	p.narrate.Wait(e.set, e.waiting, plan.Waits...)
	if len(undone) > 0 {
		plan.Waits = slices.DeleteFunc(slices.Clone(plan.Waits), func(w lws.Wait) bool { return w.Followup })
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
	_, deletes := a.(action.Delete)
	if !deletes || a.Target().Kind != identity.KindPersistentVolumeClaim || !apierrors.IsForbidden(err) {
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

// apart tells whether no other write of a plan waits for this one: what is not
// deleted costs only what waits for it, a Service costs names, and what a gang
// scheduler refuses to know a group by costs nothing but the gang.
func apart(a action.Action) bool {
	_, deletes := a.(action.Delete)
	kind := a.Target().Kind
	return deletes || kind == identity.KindPodGroup || kind == identity.KindService
}

// comesAfter tells whether everything before an action is to be done first.
func comesAfter(a action.Action) bool {
	deletion, deletes := a.(action.Delete)
	return deletes && deletion.After
}

func (p *pass) do(ctx context.Context, actor *apply.Actor, owner client.Object, a action.Action) error {
	if p.ended(a) {
		return nil
	}
	_, err := actor.Do(ctx, a)
	if errors.Is(err, apply.ErrGone) {
		return nil
	}
	p.narrate.Tell(ctx, owner, a, err)
	if err == nil {
		p.remember(owner, a)
		return nil
	}
	var taken *apply.TakenError
	if errors.As(err, &taken) {
		p.observe.Taken(taken.Name)
		p.wakeSet(owner) // a group's squatter is for the set to tell of
		return apply.ErrStale
	}
	if errors.Is(err, apply.ErrStale) {
		return apply.ErrStale
	}
	return fmt.Errorf("%s %s: %w", a.Verb(), a.Target(), err)
}

// ended tells whether an action deletes what this process deleted before, and the
// cache is only late to show it. To ask again would be refused and have the pass
// look again, many times a second, while the cache catches up.
func (p *pass) ended(a action.Action) bool {
	what, deletes := a.(action.Delete)
	return deletes && p.memory.WasDeleted(what.Object.UID, p.now())
}

func (p *pass) remember(owner client.Object, a action.Action) {
	if what, deletes := a.(action.Delete); deletes {
		p.memory.Deleted(what.Object.UID, p.now())
		return
	}
	if _, ok := a.(action.WriteStatus); ok {
		p.memory.StatusWritten(owner, p.now())
		return
	}
	if isStatefulSet(a) && a.Target().Name == owner.GetName() && fieldsOf(a).GetAnnotations()[lws.AppliedAnnotationKey] != "" {
		p.memory.Accepted(owner)
	}
}

// fieldsOf is what an action writes of an object, or nothing.
func fieldsOf(a action.Action) metav1.Object {
	switch a := a.(type) {
	case action.Create:
		return a.Object
	case action.Apply:
		return a.Object
	}
	return &metav1.ObjectMeta{}
}
