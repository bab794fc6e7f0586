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
	garbage = 20 << 20
	// leastGrowth and mostGrowth bound what garbage is of the live heap, in percent.
	leastGrowth, mostGrowth = 25, 100
)

// limitGarbage keeps GOGC at what gives a small heap and a large one the same room. Most of the
// heap are caches, which stay: by a fixed percentage, a large heap is half as large again, and a
// small one is collected all the time.
func limitGarbage(ctx context.Context) {
	set := 0
	wait.UntilWithContext(ctx, func(context.Context) {
		if growth := growthOf(liveHeap()); growth != set {
			debug.SetGCPercent(growth)
			set = growth
		}
	}, 250*time.Millisecond)
}

// growthOf returns the GOGC for a live heap, in steps of five: each change stops the process for
// a moment.
func growthOf(live uint64) int {
	return min(max(int(garbage*100/max(live, 1))/5*5, leastGrowth), mostGrowth)
}

func liveHeap() uint64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return live[0].Value.Uint64()
}
