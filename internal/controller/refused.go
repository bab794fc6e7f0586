package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
)

// errand is on whose behalf a plan is carried out.
type errand struct {
	set client.Object
	// waiting is who waits for what the plan waits for.
	waiting types.UID
	// leader names the leader of the group, or is empty for the set as such.
	leader string
	// retell is what a set would do if a spec like its own had just been refused. It
	// is nil in a group: its set tells.
	retell func(lws.Refusal) lws.Plan
}

// end ends a pass on what could not be done apart, and on the error that stopped it,
// if one did. What the API server refuses is for the set to tell of, and is tried again ever
// more slowly: a retry will hardly mend it. Any other error is tried again at once.
func (p *pass) end(ctx context.Context, e errand, undone []error, stopped error) (ctrl.Result, error) {
	var result ctrl.Result
	if stopped != nil && e.retell != nil {
		if refusal, is := lws.RefusalOf(stopped, p.now()); is {
			result.RequeueAfter = p.leaveAlone(ctx, e, refusal, stopped)
			stopped = nil
		}
	}
	if stopped != nil {
		undone = append(undone, stopped)
	}
	refusals, errs := p.sift(undone)
	if len(errs) > 0 && len(refusals) == 0 {
		return ctrl.Result{}, errors.Join(errs...) // what was refused before may not have been tried
	}
	going, news := p.memory.RefusedTo(e.set, e.leader, refusals)
	for _, refusal := range going {
		result.RequeueAfter = sooner(result.RequeueAfter, refusal.Again().Sub(p.now()))
		if news {
			logr.FromContextOrDiscard(ctx).Info("refused", "refusal", refusal.Sentence)
		}
	}
	if news && (e.leader != "" || len(going) == 0) { // a set that is refused something looks again in its time
		p.wakeSet(e.set)
	}
	if len(errs) > 0 {
		return ctrl.Result{}, errors.Join(errs...)
	}
	return result, nil
}

// leaveAlone has a set tell at once that its spec is refused, and returns for how
// long it is left alone.
func (p *pass) leaveAlone(ctx context.Context, e errand, refusal lws.Refusal, err error) time.Duration {
	refusal = p.memory.Refused(e.set, refusal)
	for _, a := range e.retell(refusal).Actions {
		if _, status := a.(action.WriteStatus); status {
			_ = p.do(ctx, p.act, e.set, a) // told already; the refusal itself is what the pass ends on
		}
	}
	logr.FromContextOrDiscard(ctx).Error(err, "refused")
	return refusal.Again().Sub(p.now())
}

// sift parts refusals, in an order that stays, from what passes by itself.
func (p *pass) sift(undone []error) (refusals []lws.Refusal, errs []error) {
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

// each returns the errors that were joined to one: of the outermost alone, for what one
// write ended in stays one.
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
