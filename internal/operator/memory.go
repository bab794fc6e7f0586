package operator

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// garbage is how many bytes may become free between two collections.
	garbage = 24 << 20
	// leastGrowth and mostGrowth bound what garbage is of the live heap, in percent.
	leastGrowth, mostGrowth = 35, 200

	// A burst of work is over when the process allocated next to nothing between several checks.
	quietBytes, quietChecks = 256 << 10, 4
	// worthBytes is what a burst must have allocated before memory is given back after it.
	worthBytes = 16 << 20
)

// limitGarbage keeps GOGC at what gives a small heap and a large one the same room. Most of the
// heap are caches, which stay: by a fixed percentage, a large heap is half as large again, and a
// small one is collected all the time. After a burst of work it gives memory back to the system:
// the runtime itself takes minutes, and collects nothing until more work comes.
func limitGarbage(ctx context.Context) {
	set, work := 0, burst{}
	wait.UntilWithContext(ctx, func(context.Context) {
		live := measured("/gc/heap/live:bytes")
		if growth := growthOf(live); growth != set {
			debug.SetGCPercent(growth)
			set = growth
		}
		if work.isOver(measured("/gc/heap/allocs:bytes"), live) {
			debug.FreeOSMemory()
		}
	}, 250*time.Millisecond)
}

// growthOf returns the GOGC for a live heap, in steps of five: each change stops the process for
// a moment.
func growthOf(live uint64) int {
	return min(max(int(garbage*100/max(live, 1))/5*5, leastGrowth), mostGrowth)
}

// burst is work since memory was last given back. Sizes are bytes allocated since the start.
type burst struct {
	last, began uint64
	quiet       int
}

// isOver is called at each check, and reports whether a burst that is worth it is over. The next one
// begins then. A large heap takes longer to collect, so its burst must be larger.
func (b *burst) isOver(allocated, live uint64) bool {
	if b.quiet++; allocated-b.last > quietBytes {
		b.quiet = 0
	}
	b.last = allocated
	if b.quiet < quietChecks || allocated-b.began < max(worthBytes, live/2) {
		return false
	}
	b.began = allocated
	return true
}

func measured(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
