package reconcile

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
)

// finish turns the errors of independent writes, and the error that stopped the reconcile, if any, into a result or a
// retry. The set reports what the API server refuses, and the write is retried
// ever more slowly. Any other error is retried at once.
func (l *Loop) finish(ctx context.Context, r Request, undone []error, stopped error) (ctrl.Result, error) {
	if _, stands := r.Object.(*lwsv1.LeaderWorkerSet); !stands { // it is gone, and no status can say what is refused
		return ctrl.Result{}, errors.Join(append(undone, stopped)...)
	}
	log := logr.FromContextOrDiscard(ctx)
	if stopped != nil {
		if refusal, is := lws.RefusalOf(stopped, l.Now()); is && r.Leader == "" {
			l.Memory.Refused(r.Object, refusal)
			log.Error(stopped, "refused")
			return ctrl.Result{RequeueAfter: ReadAgain}, nil // the next reconcile writes the status
		}
		undone = append(undone, stopped)
	}
	refusals, errs := l.refusals(undone)
	if len(errs) > 0 && len(refusals) == 0 {
		return ctrl.Result{}, errors.Join(errs...) // a write that was refused before may not have been tried
	}
	going, news := l.Memory.RefusedTo(r.Object, r.Leader, refusals)
	var result ctrl.Result
	for _, refusal := range going {
		result.RequeueAfter = sooner(result.RequeueAfter, refusal.Again().Sub(l.Now()))
		if news {
			log.Info("refused", "refusal", refusal.Sentence)
		}
	}
	if news && (r.Leader != "" || len(going) == 0) { // a set that is refused something is requeued above
		l.WakeSet(r.Object)
	}
	if len(errs) > 0 {
		return ctrl.Result{}, errors.Join(errs...)
	}
	return result, nil
}

// refusals parts refusals, in a stable order, from errors that pass by themselves.
func (l *Loop) refusals(undone []error) (refusals []lws.Refusal, errs []error) {
	for _, err := range undone {
		if refusal, is := lws.RefusalOf(err, l.Now()); is {
			refusals = append(refusals, refusal)
			continue
		}
		errs = append(errs, err)
	}
	slices.SortStableFunc(refusals, func(a, b lws.Refusal) int { return cmp.Compare(a.Sentence, b.Sentence) })
	return refusals, errs
}
