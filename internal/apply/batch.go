package apply

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

// independent tells whether an action does not depend on its neighbours of the
// same form and kind.
func independent(a action.Action) bool {
	switch a.(type) {
	case action.Delete, action.Tie:
		return true
	}
	return a.Target().Kind == identity.KindPod
}

// alike tells whether an action has the same form as the one before it, and need not
// wait for it.
func alike(before, a action.Action) bool {
	deletion, _ := a.(action.Delete)
	return !deletion.After && before.Verb() == a.Verb() && (deletion.Beside || before.Target().Kind == a.Target().Kind)
}

// Batch splits actions into runs that may go out together: neighbouring deletes,
// ties and pods are independent of each other, anything else waits its turn.
func Batch(actions []action.Action) [][]action.Action {
	var runs [][]action.Action
	for i, a := range actions {
		if i > 0 && independent(a) && alike(actions[i-1], a) {
			last := len(runs) - 1
			runs[last] = append(runs[last], a)
			continue
		}
		runs = append(runs, []action.Action{a})
	}
	return runs
}

// atOnce is how many actions a run begins with that are apart from all others: the pods
// of a group that ends are not to wait for each other, nor the claims of one group that
// was scaled away for those of another, and one that is refused costs the server little.
const atOnce = 16

// begins is how many actions a run begins with.
func begins(run []action.Action) int {
	if slices.ContainsFunc(run, func(a action.Action) bool { return !apart(a) }) {
		return 1
	}
	return atOnce
}

// apart tells whether an action says nothing of how the next of its kind will fare.
func apart(a action.Action) bool {
	_, deletes := a.(action.Delete)
	return deletes
}

// SlowStart calls do for each action of a run, first one, or as many as do not wait for each other, then
// twice as many at a time, then four times: a run that is bound to fail costs one
// round. It ends after the first round in which a call failed. Of the errors of a round, those that are not
// ErrStale are returned joined; ErrStale only if there is no other.
func SlowStart(ctx context.Context, run []action.Action, do func(context.Context, action.Action) error) error {
	for width := begins(run); len(run) > 0; width *= 2 {
		round := run[:min(width, len(run))]
		run = run[len(round):]
		if err := together(ctx, round, do); err != nil {
			return err
		}
	}
	return nil
}

func together(ctx context.Context, round []action.Action, do func(context.Context, action.Action) error) error {
	errs := make([]error, len(round))
	var group sync.WaitGroup
	for i, a := range round {
		group.Go(func() { errs[i] = do(ctx, a) })
	}
	group.Wait()
	telling := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, ErrStale) })
	return cmp.Or(errors.Join(telling...), errors.Join(errs...))
}
