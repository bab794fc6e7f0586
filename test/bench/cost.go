package main

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"

	"lockstep.dev/lockstep/test/drill"
)

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
func (s *stage) spend(what string, do func() error, done func() bool) (c cost) {
	s.remark()
	created := holding(s.census, func() int { return s.created })
	cpu, began := s.used().cpu, time.Now()
	if err := do(); err != nil {
		must(fmt.Errorf("%s: %w", what, err))
	}
	s.await(what, done)
	c.time = time.Since(began)
	s.rest()
	c.cpu = s.used().cpu - cpu
	c.pods = holding(s.census, func() int { return s.created }) - created
	must(s.Audit.Sync())
	for _, r := range s.since(drill.ByLockstep) {
		switch {
		case r.Resource == "events":
			c.events++
		case drill.IsWrite(r):
			c.writes++
		case r.Verb != "watch":
			c.reads++
		}
	}
	return c
}

// tellCost adds the figures of a cost, and of the floor, which may be zero.
func (b *bed) tellCost(c, floor cost) {
	b.tell("seconds", c.time.Seconds())
	if floor.time > 0 {
		b.tell("floor-seconds", floor.time.Seconds())
		b.tell("ratio", c.time.Seconds()/floor.time.Seconds())
	}
	b.tell("writes", float64(c.writes))
	b.tell("events", float64(c.events))
	b.tell("reads", float64(c.reads))
	b.tell("pods-created", float64(c.pods))
	b.tell("cpu-seconds", c.cpu.Seconds())
}

// rest returns once the operator has nothing more to do: what it still writes
// belongs to what was measured.
func (b *bed) rest() {
	const still = 10 * time.Millisecond // of CPU in half a second
	for quiet := 0; quiet < 3; {
		before := b.used().cpu
		pause(b.ctx, 500*time.Millisecond)
		if quiet++; b.used().cpu-before > still {
			quiet = 0
		}
	}
}

// usage is what a process has used so far. On systems without /proc it is zero.
type usage struct {
	cpu  time.Duration // for itself and in the kernel
	rss  float64       // MiB now
	peak float64       // MiB at most so far
}

// used is what the operator has used so far.
func (b *bed) used() (u usage) {
	process, err := procfs.NewProc(b.Operator.PID())
	if err != nil {
		return u
	}
	if stat, err := process.Stat(); err == nil {
		u.cpu = time.Duration(stat.CPUTime() * float64(time.Second))
	}
	if status, err := process.NewStatus(); err == nil {
		u.rss, u.peak = float64(status.VmRSS)/(1<<20), float64(status.VmHWM)/(1<<20)
	}
	return u
}

// resetPeak restarts the count of the most memory that the operator took.
func (b *bed) resetPeak() {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", b.Operator.PID()), []byte("5"), 0) // without it the figure is the larger
}
