package operator

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemoryIsGivenBackOnceTheProcessRests(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name string
		// comes is what is allocated before each measurement, in bytes; nothing after.
		comes []uint64
		want  []int // the measurements after which memory is given back
		live  uint64
	}{
		{"a start", []uint64{40 * mib, 10 * mib}, []int{2 + stillFor}, 0},
		{"little work", []uint64{mib, mib}, nil, 0},
		{"work that goes on", slices.Repeat([]uint64{mib}, 100), []int{100 + stillFor}, 0},
		{"a pause", []uint64{40 * mib, 0, 0, mib}, []int{4 + stillFor}, 0},
		{"little work, often", slices.Repeat([]uint64{8 * mib, 0, 0, 0, 0}, 3), []int{10}, 0},
		{"twice", []uint64{40 * mib, 0, 0, 0, 0, 0, 0, 40 * mib}, []int{5, 12}, 0},
		{"not much for a large heap", []uint64{40 * mib}, nil, 100 * mib},
		{"much for a large heap", []uint64{50 * mib}, []int{1 + stillFor}, 100 * mib},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var sum uint64
				var freed []int
				measured, freeing := 0, false
				s := settling{
					allocated: func() uint64 {
						if freeing { // what giving back takes itself
							freeing = false
							return sum
						}
						if measured++; measured <= len(tt.comes) {
							sum += tt.comes[measured-1]
						}
						return sum
					},
					live: func() uint64 { return tt.live },
					free: func() { freed, freeing = append(freed, measured), true },
				}
				if err := s.Start(ctx); err != nil || !slices.Equal(freed, tt.want) {
					t.Errorf("given back after measurements %v, %v; want %v", freed, err, tt.want)
				}
			})
		})
	}
	before := allocated()
	sink = make([]byte, mib)
	if got := allocated(); got < before+mib {
		t.Errorf("the runtime says that %d bytes were allocated, then %d", before, got)
	}
}

var sink []byte

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
