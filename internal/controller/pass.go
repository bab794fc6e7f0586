package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/act"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/narrate"
	"lockstep.dev/lockstep/internal/observe"
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
	observe *observe.Observer
	memory  *observe.Memory
	act     *act.Actor
	narrate *narrate.Narrator
	now     func() time.Time
	// wakeSet has a set looked at again.
	wakeSet func(client.Object)
	// wakeGroup has a group looked at again, by its leader.
	wakeGroup func(client.Object)
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
// else waits for is tried again later when it fails, and ends nothing.
//
// retell is nil in a group: its set tells.
func (p *pass) carryOut(ctx context.Context, owner client.Object, waiting types.UID, plan lws.Plan, now time.Time, retell retell) (ctrl.Result, error) {
	var undone error
	actor := p.act.Pass()
	for _, run := range act.Batch(plan.Actions) {
		err := act.SlowStart(ctx, run, func(ctx context.Context, a action.Action) error { return p.do(ctx, actor, owner, a) })
		if errors.Is(err, act.ErrStale) {
			return ctrl.Result{RequeueAfter: lookAgain}, nil
		}
		if apart(run[0]) {
			undone = errors.Join(undone, err)
			continue
		}
		if _, status := run[0].(action.WriteStatus); status && err != nil {
			return ctrl.Result{}, err
		}
		if err != nil {
			return p.refused(ctx, owner, retell, err)
		}
	}
	for _, wait := range plan.Waits {
		p.narrate.Wait(owner, waiting, wait)
	}
	if undone != nil {
		return ctrl.Result{}, undone
	}
	return ctrl.Result{RequeueAfter: plan.Next(now)}, nil
}

// apart tells whether no other write of a plan waits for this one: what is not
// deleted costs only what waits for it, and what a gang scheduler refuses to know
// a group by costs nothing but the gang.
func apart(a action.Action) bool {
	_, deletes := a.(action.Delete)
	return deletes || a.Target().Kind == identity.KindPodGroup
}

// refused ends a pass on an error. What the API server refuses, as invalid or
// forbidden, is for the set to tell of at once. An invalid object is not tried
// again for a while: a retry will hardly mend it, and a policy that refuses in the
// same way may be lifted without any event.
func (p *pass) refused(ctx context.Context, owner client.Object, retell retell, err error) (ctrl.Result, error) {
	invalid := apierrors.IsInvalid(err)
	if retell != nil && (invalid || apierrors.IsForbidden(err)) {
		p.tellRefusal(ctx, owner, retell, lws.Refusal{Sentence: err.Error(), At: p.now()}, invalid)
	}
	if !invalid {
		return ctrl.Result{}, err
	}
	logr.FromContextOrDiscard(ctx).Error(err, "refused")
	return ctrl.Result{RequeueAfter: lws.RetryRefusedAfter}, nil
}

// retell is what a set would do if a spec like its own had just been refused.
type retell func(lws.Refusal) lws.Plan

func (p *pass) tellRefusal(ctx context.Context, owner client.Object, retell retell, refusal lws.Refusal, remember bool) {
	if remember {
		p.memory.Refused(owner, refusal)
	}
	for _, a := range retell(refusal).Actions {
		if _, status := a.(action.WriteStatus); status {
			_ = p.do(ctx, p.act, owner, a) // told already; the refusal itself is what the pass ends on
		}
	}
}

func (p *pass) do(ctx context.Context, actor *act.Actor, owner client.Object, a action.Action) error {
	if p.ended(a) {
		return nil
	}
	done, err := actor.Do(ctx, a)
	if errors.Is(err, act.ErrGone) {
		return nil
	}
	p.narrate.Tell(ctx, owner, a, err)
	if err == nil {
		p.remember(owner, a, done)
		return nil
	}
	var taken *act.TakenError
	if errors.As(err, &taken) {
		if err := p.observe.Uncover(ctx, taken.Name, p.now()); err != nil {
			return err
		}
		p.wakeSet(owner) // a group's squatter is for the set to tell of
		return act.ErrStale
	}
	if errors.Is(err, act.ErrStale) {
		p.memory.Doubt(a.Target())
		return act.ErrStale
	}
	return fmt.Errorf("%s %s: %w", a.Verb(), a.Target(), err)
}

// ended tells whether an action deletes what this process deleted before, and the
// cache is only late to show it. To ask again would be refused and have the pass
// look again, many times a second, while the cache catches up.
func (p *pass) ended(a action.Action) bool {
	what, deletes := a.(action.Delete)
	return deletes && p.memory.HasEnded(what.Object.UID, p.now())
}

func (p *pass) remember(owner client.Object, a action.Action, done act.Done) {
	if what, deletes := a.(action.Delete); deletes {
		p.memory.Ended(what.Object.UID, p.now())
		return
	}
	if status, ok := a.(action.WriteStatus); ok {
		p.memory.StatusWritten(owner, p.now())
		p.memory.StatusGiven(owner, status.Status)
		p.wakeFailed(owner, status.Status)
		return
	}
	if !isStatefulSet(a) {
		return
	}
	if _, created := a.(action.Create); created {
		p.memory.Started(types.NamespacedName{Namespace: owner.GetNamespace(), Name: a.Target().Name})
	}
	fingerprint := fieldsOf(a).GetAnnotations()[lws.AppliedAnnotationKey]
	if a.Target().Name == owner.GetName() && fingerprint != "" {
		p.memory.Applied(owner, lws.Applied{UID: done.UID, Generation: done.Generation, Fingerprint: fingerprint})
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
