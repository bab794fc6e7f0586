package operator

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
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
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

// settleAfter is when, after the caches are filled, what filling them took is given
// back: the lists themselves, and the first look at everything.
var settleAfter = []time.Duration{2 * time.Second, 20 * time.Second}

// settling gives back to the system what the first lists took. The runtime does so by
// itself, but over minutes.
type settling struct {
	caches cache.Cache
	after  []time.Duration
	free   func()
}

// Start implements manager.Runnable.
func (s settling) Start(ctx context.Context) error {
	if !s.caches.WaitForCacheSync(ctx) {
		return nil
	}
	for _, after := range s.after {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(after):
			s.free()
		}
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica fills
// its caches.
func (s settling) NeedLeaderElection() bool { return false }
