package main

import (
	"context"
	"fmt"
	"time"

	"lockstep.dev/lockstep/test/drill"
)

// figure is one result of a scenario.
type figure struct {
	name  string // "create-100x8.ratio"
	value float64
}

// figures are those of one scenario, in the order they are told.
type figures []figure

func (f *figures) add(name string, value float64) { *f = append(*f, figure{name, value}) }

// cost is what a stretch of work took.
type cost struct {
	time   time.Duration
	cpu    time.Duration // of the operator
	writes int           // of the operator, events aside
	events int
	reads  int // of the operator, watches aside
	pods   int // created by any client
}

// spend does something, waits until it is done, and measures it.
func (s *stage) spend(ctx context.Context, what string, do func() error, done func() bool) (cost, error) {
	if err := s.remark(); err != nil {
		return cost{}, err
	}
	created := holding(s.census, func() int { return s.created })
	defer s.profiles.take(s.load)()
	cpu, began := cpuOf(s.operator.PID()), time.Now()
	if err := do(); err != nil {
		return cost{}, fmt.Errorf("%s: %w", what, err)
	}
	if err := s.await(ctx, what, done); err != nil {
		return cost{}, err
	}
	c := cost{time: time.Since(began)}
	if err := s.rest(ctx); err != nil {
		return cost{}, err
	}
	c.cpu = cpuOf(s.operator.PID()) - cpu
	c.pods = holding(s.census, func() int { return s.created }) - created
	return c, s.countRequests(&c)
}

// rest returns once the operator has nothing more to do: what it still writes
// belongs to what was measured.
func (b *bed) rest(ctx context.Context) error {
	const still = 10 * time.Millisecond // of CPU in half a second
	for quiet := 0; quiet < 3; {
		before := cpuOf(b.operator.PID())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
		if quiet++; cpuOf(b.operator.PID())-before > still {
			quiet = 0
		}
	}
	return nil
}

// countRequests counts what the operator asked for since the mark in the stage's
// namespace.
func (s *stage) countRequests(c *cost) error {
	if err := s.audit.Sync(); err != nil {
		return err
	}
	for _, r := range s.audit.Kept(s.mark, func(r drill.Request) bool { return drill.ByLockstep(r) && r.Namespace == s.namespace }) {
		switch {
		case r.Resource == "events":
			c.events++
		case drill.IsWrite(r):
			c.writes++
		case r.Verb != "watch":
			c.reads++
		}
	}
	return nil
}

// tell adds the figures of a cost, and of the floor, which may be zero.
func (c cost) tell(f *figures, scenario string, floor cost) {
	f.add(scenario+".seconds", c.time.Seconds())
	if floor.time > 0 {
		f.add(scenario+".floor-seconds", floor.time.Seconds())
		f.add(scenario+".ratio", c.time.Seconds()/floor.time.Seconds())
	}
	f.add(scenario+".writes", float64(c.writes))
	f.add(scenario+".events", float64(c.events))
	f.add(scenario+".reads", float64(c.reads))
	f.add(scenario+".pods-created", float64(c.pods))
	f.add(scenario+".cpu-seconds", c.cpu.Seconds())
}
