package lws

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

	"lockstep.dev/lockstep/internal/lws"
)

// errand is the object that a plan is carried out for.
type errand struct {
	set client.Object
	// waiting is the UID of the object that waits for what the plan waits for.
	waiting types.UID
	// leader names the leader of the group, or is empty for the set itself.
	leader string
}

// end ends a pass with the errors of writes that nothing waited for, and with the error that
// stopped it, if any. The set reports what the API server refuses, and the write is tried again
// ever more slowly. Any other error is tried again at once.
func (p *pass) end(ctx context.Context, e errand, undone []error, stopped error) (ctrl.Result, error) {
	log := logr.FromContextOrDiscard(ctx)
	if stopped != nil {
		if refusal, is := lws.RefusalOf(stopped, p.now()); is && e.leader == "" {
			p.memory.Refused(e.set, refusal)
			log.Error(stopped, "refused")
			return ctrl.Result{RequeueAfter: lookAgain}, nil // the next pass writes the status
		}
		undone = append(undone, stopped)
	}
	refusals, errs := p.sift(undone)
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

// sift parts refusals, in a stable order, from errors that pass by themselves.
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

// each returns the errors that were joined to one. It looks at the outermost alone: the
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
