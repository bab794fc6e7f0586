package apply

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"k8s.io/client-go/util/workqueue"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// Batch splits actions into runs that may go out together: neighbouring deletes, owners of PVCs
// and pods do not depend on each other, anything else waits its turn.
func Batch(actions []action.Action) (runs [][]action.Action) {
	for i, a := range actions {
		if i == 0 || !goesWith(actions[i-1], a) {
			runs = append(runs, nil)
		}
		runs[len(runs)-1] = append(runs[len(runs)-1], a)
	}
	return runs
}

// goesWith reports whether an action need not wait for the one before it.
func goesWith(before, a action.Action) bool {
	deletion, deletes := a.(action.Delete)
	_, setsOwners := a.(action.SetOwner)
	isFree := (deletes || setsOwners || a.Target().Kind == identity.KindPod) && !deletion.After
	return isFree && before.About().Verb == a.About().Verb && before.Target().Kind == a.Target().Kind
}

// atOnce is how many deletes a run begins with: the pods of a group do not wait for each other,
// nor do the PVCs of one group for those of another. A refused delete costs the server little.
const (
	atOnce = 16
	// atMost bounds the writes of one run that are under way: those of other sets wait for the same API server.
	atMost = 64
)

// SlowStart calls do for each action of a run: for one, then for two together, then four, up to a bound. A run
// that is bound to fail costs one round: it ends after the first round in which a call failed. Of
// the errors of a round it returns those that are not ErrStale, joined, or else ErrStale.
func SlowStart(ctx context.Context, run []action.Action, together func(int, func(int)), do func(context.Context, action.Action) error) error {
	width := 1
	if len(run) > 0 && run[0].About().Verb == (action.Delete{}).About().Verb {
		width = atOnce
	}
	for ; len(run) > 0; width = min(2*width, atMost) {
		round := run[:min(width, len(run))]
		run = run[len(round):]
		errs := make([]error, len(round))
		together(len(round), func(i int) { errs[i] = do(ctx, round[i]) })
		others := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, ErrStale) })
		if err := cmp.Or(errors.Join(others...), errors.Join(errs...)); err != nil {
			return err
		}
	}
	return nil
}

// AtOnce calls do for each number below n, all at once.
func AtOnce(n int, do func(int)) { workqueue.ParallelizeUntil(context.Background(), n, n, do) }
