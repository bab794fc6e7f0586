package operator

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// growth is how many percent the heap may grow between two collections. Most of it
// are caches, which live long: the default, 100, would have them twice in memory.
const growth = 50

// economize has the program keep less garbage, unless the environment says how much.
func economize() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(growth)
	}
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
