package operator

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// room is how much garbage may come together between two collections.
	room = 24 << 20
	// leastGrowth and mostGrowth bound what it may be of what lives, in percent: with
	// less, a large heap would be collected without end; with more, caches that fill
	// would be in memory several times before they are measured again.
	leastGrowth, mostGrowth = 35, 200
	// paceEvery is how often the room is measured anew.
	paceEvery = 250 * time.Millisecond
)

// pacing has the garbage collector leave a room that is the same for a small heap and a
// large one. Most of the heap are caches, which live long: the runtime's own rule, to
// let it double, has a large one twice in memory and collects a small one all the time.
type pacing struct {
	live func() uint64
	set  func(percent int)
}

// paced is the pacing of this process, or none where the environment says how much the
// heap may grow.
func paced() (pacing, bool) {
	return pacing{live: liveHeap, set: func(percent int) { debug.SetGCPercent(percent) }}, os.Getenv("GOGC") == ""
}

// Start implements manager.Runnable.
func (p pacing) Start(ctx context.Context) error {
	tick := time.NewTicker(paceEvery)
	defer tick.Stop()
	growth := 0
	for {
		if now := growthOf(p.live()); now != growth {
			p.set(now)
			growth = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a replica that waits
// has the same caches.
func (p pacing) NeedLeaderElection() bool { return false }

// growthOf is how many percent of what lives the room is, in steps of five: each change
// stops the world for a moment.
func growthOf(live uint64) int {
	growth := mostGrowth
	if live > 0 {
		growth = int(min(room*100/live, mostGrowth))
	}
	return max(growth/5*5, leastGrowth)
}

// liveHeap is what the last collection found alive, in bytes.
func liveHeap() uint64 { return measured("/gc/heap/live:bytes") }

// allocated is how many bytes were taken from the heap so far.
func allocated() uint64 { return measured("/gc/heap/allocs:bytes") }

func measured(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

const (
	// stillFor is how many measurements in a row the process must have rested before
	// memory is given back.
	stillFor = 4
	// still is how much it allocates between two of them while it rests.
	still = 256 << 10
	// muchGarbage is what must have been allocated before anything is given back again,
	// and so is half of what lives: to collect a large heap takes the longer.
	muchGarbage = 16 << 20
)

// settling gives back to the system what a burst of work took, once it is over: the
// lists that filled the caches, a first look at everything, a thousand claims. The
// runtime does so by itself, but over minutes, and collects nothing until more comes.
type settling struct {
	// allocated is how much was allocated so far, in bytes, and live how much of that
	// was found alive last.
	allocated, live func() uint64
	free            func()
}

// Start implements manager.Runnable.
func (s settling) Start(ctx context.Context) error {
	tick := time.NewTicker(paceEvery)
	defer tick.Stop()
	var l lull
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if l.after(s.allocated(), s.live()) {
			s.free()
			l.freed(s.allocated())
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica fills
// its caches.
func (s settling) NeedLeaderElection() bool { return false }

// lull knows whether work has come to an end.
type lull struct {
	last  uint64 // allocated, when measured last
	base  uint64 // allocated, when memory was given back
	quiet int    // measurements in a row that found next to nothing
}

// after takes a measurement, and tells whether it is time to give memory back.
func (l *lull) after(allocated, live uint64) bool {
	l.quiet++
	if allocated-l.last > still {
		l.quiet = 0
	}
	l.last = allocated
	return l.quiet >= stillFor && allocated-l.base >= max(muchGarbage, live/2)
}

func (l *lull) freed(allocated uint64) { l.last, l.base = allocated, allocated }
