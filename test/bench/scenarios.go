package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// scenario is one thing that users do, measured.
type scenario struct {
	name, about string
	run         func(context.Context, *bed) (figures, error)
	// cold: there are no sets in it, and nothing has to be done once before.
	cold bool
}

// errInvalid is the mark of a run that does not count: the load was not reached.
var errInvalid = errors.New("invalid run")

// scenarios are in the order in which they are best run: the largest last.
var scenarios = []scenario{
	{"create-100x8", "create 100 groups of 8", createScenario("create-100x8", 100, 8), false},
	{"create-500x2", "create 500 groups of 2", createScenario("create-500x2", 500, 2), false},
	{"roll-100x8", "give 100 groups of 8 another template, maxUnavailable 10", roll, false},
	{"kill-one", "delete one worker of a group of 8, again and again; the group is recreated", killOne, false},
	{"kill-40", "delete one worker in each of 40 groups at once", killForty, false},
	{"idle-100x8", "an hour in which nothing changes, compressed: resyncs and meaningless changes", idle, false},
	{"admit-claims", "create and delete claims where our admission holds, and where it does not", admit, true},
	{"release-1000", "let go of 1,000 deleted claims among 10,000 pods, beside the controller that is built in", release, true},
	{"restart-1000x8", "start the operator again beside 1,000 groups of 8; then cost per event there and at 10 groups", restartOperator, false},
}

// measure runs a scenario several times and returns the median of each figure. last reports
// whether no other comes after it.
func (b *bed) measure(ctx context.Context, one scenario, repeat int, last bool) (figures, error) {
	var all []figures
	for i := range repeat {
		b.last = last && i == repeat-1
		figures, err := one.run(ctx, b)
		if err != nil {
			return medians(append(all, figures)), err // what there is of an invalid run helps to see why
		}
		all = append(all, figures)
	}
	return medians(all), nil
}

// medians are those of each figure over several runs.
func medians(runs []figures) figures {
	if len(runs) == 0 {
		return nil
	}
	var result figures
	for i, first := range runs[0] {
		var values []float64
		for _, run := range runs {
			if i < len(run) && run[i].name == first.name {
				values = append(values, run[i].value)
			}
		}
		slices.Sort(values)
		result.add(first.name, values[len(values)/2])
	}
	return result
}

// createScenario has the same load made bare and as a set.
func createScenario(name string, groups, size int) func(context.Context, *bed) (figures, error) {
	return func(ctx context.Context, b *bed) (figures, error) {
		bare, err := b.creation(ctx, floor(groups, size))
		if err != nil {
			return nil, fmt.Errorf("the floor: %w", err)
		}
		ours, err := b.creation(ctx, own(groups, size))
		if err != nil {
			return nil, err
		}
		var f figures
		ours.tell(&f, name, bare)
		f.add(name+".writes-beyond-groups", float64(ours.writes-groups))
		f.add(name+".rss-mib", usageOf(b.operator.PID()).rss)
		return f, nil
	}
}

// creation measures how a load comes.
func (b *bed) creation(ctx context.Context, l load) (cost, error) {
	s, err := b.newStage(ctx, l)
	if err != nil {
		return cost{}, err
	}
	defer s.strikeEmpty(ctx)
	c, err := s.comes(ctx)
	if err == nil && c.pods != l.groups*l.size {
		err = fmt.Errorf("%w: %d pods were created for %d", errInvalid, c.pods, l.groups*l.size)
	}
	return c, err
}

func (s *stage) comes(ctx context.Context) (cost, error) {
	return s.spend(ctx, "all groups are there", func() error { return s.create(ctx, s) }, s.complete)
}

// strikeEmpty clears the stage and returns when its pods are gone: what follows is
// to have the machine to itself.
func (s *stage) strikeEmpty(ctx context.Context) {
	_ = s.remove(ctx, s)
	_ = s.await(ctx, "all pods are gone", s.empty)
	s.strike()
	_ = s.rest(ctx)
}

// leave clears the stage for what follows. Where nothing does, it goes with the control
// plane: thousands of pods take minutes to leave one by one.
func (s *stage) leave(ctx context.Context) {
	if !s.last {
		s.strikeEmpty(ctx)
	}
}

// standing is a load that is there.
func (b *bed) standing(ctx context.Context, l load) (*stage, error) {
	s, err := b.newStage(ctx, l)
	if err != nil {
		return nil, err
	}
	if _, err := s.comes(ctx); err != nil {
		s.strike()
		return nil, err
	}
	return s, nil
}

// pause lets time pass.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
