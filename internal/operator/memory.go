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

	// restBytes is what a process at rest allocates between two checks at most.
	restBytes = 256 << 10
	// worthBytes is what work must have allocated before memory is returned after it.
	worthBytes = 16 << 20
)

// limitGarbage keeps GOGC at what gives a small heap and a large one the same room. Most of the
// heap are caches, which stay: by a fixed percentage, a large heap is half as large again, and a
// small one is collected all the time. After work it returns memory to the system: the runtime
// itself takes minutes, and collects nothing until more work comes.
func limitGarbage(ctx context.Context) {
	var growth int
	var last, returned uint64
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	wait.UntilWithContext(ctx, func(context.Context) {
		metrics.Read(heap)
		live, allocated := heap[0].Value.Uint64(), heap[1].Value.Uint64()
		if now := growthOf(live); now != growth {
			debug.SetGCPercent(now)
			growth = now
		}
		if isWorthReturning(allocated-last, allocated-returned, live) {
			returned = allocated
			debug.FreeOSMemory()
		}
		last = allocated
	}, 250*time.Millisecond)
}

// isWorthReturning reports whether the process rests after work that allocated much. The arguments are the bytes that it
// allocated since the last check and since it returned memory, and the live heap: a large one takes longer to collect.
func isWorthReturning(lately, since, live uint64) bool {
	return lately <= restBytes && since >= max(worthBytes, live/2)
}

// growthOf returns the GOGC for a live heap, in steps of five: each change stops the process for
// a moment.
func growthOf(live uint64) int {
	return min(max(int(garbage*100/max(live, 1))/5*5, leastGrowth), mostGrowth)
}
