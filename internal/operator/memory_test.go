package operator

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// filling is a cache that has what it should have, or never will.
type filling struct {
	cache.Cache
	filled bool
}

func (f filling) WaitForCacheSync(ctx context.Context) bool {
	if !f.filled {
		<-ctx.Done()
	}
	return f.filled
}

func TestMemoryIsGivenBackOnceTheCachesAreFilled(t *testing.T) {
	for _, tt := range []struct {
		name   string
		filled bool
		runs   time.Duration
		want   int
	}{
		{"to the end", true, time.Minute, len(settleAfter)},
		{"ended early", true, settleAfter[0] + time.Second, 1},
		{"never filled", false, time.Minute, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.runs)
				defer cancel()
				freed := 0
				s := settling{caches: filling{filled: tt.filled}, after: settleAfter, free: func() { freed++ }}
				if err := s.Start(ctx); err != nil || freed != tt.want {
					t.Errorf("given back %d times, %v; want %d", freed, err, tt.want)
				}
			})
		})
	}
}

func TestTheRoomForGarbageIsTheSameForAllHeaps(t *testing.T) {
	for live, want := range map[uint64]int{0: 200, 1 << 20: 200, 12 << 20: 200, 16 << 20: 150, 24 << 20: 100, 48 << 20: 50, 50 << 20: 45, 1 << 30: 35, 1 << 50: 35} {
		if got := growthOf(live); got != want {
			t.Errorf("%d MiB may grow by %d %%, want %d", live>>20, got, want)
		}
	}
	if live := liveHeap(); live == 0 || live > 1<<40 {
		t.Errorf("the runtime says that %d bytes live", live)
	}
}

func TestTheCollectorFollowsTheHeap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*paceEvery+paceEvery/2)
		defer cancel()
		heaps := []uint64{4 << 20, 4 << 20, 24 << 20, 24<<20 + 1<<10, 48 << 20, 48 << 20}
		var set []int
		p := pacing{live: func() uint64 { live := heaps[0]; heaps = heaps[1:]; return live }, set: func(percent int) { set = append(set, percent) }}
		if err := p.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if want := []int{200, 100, 95, 50}; !slices.Equal(set, want) {
			t.Errorf("set to %v, want %v", set, want)
		}
	})
}
