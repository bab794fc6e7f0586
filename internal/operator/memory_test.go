package operator

import "testing"

func TestGrowthLeavesTheSameRoomForEveryHeap(t *testing.T) {
	const mebibyte = 1 << 20
	for live, want := range map[uint64]int{0: 100, 4 * mebibyte: 100, 20 * mebibyte: 100, 40 * mebibyte: 50, 500 * mebibyte: 25} {
		if got := growthOf(live); got != want {
			t.Errorf("%d MiB live: GOGC %d, want %d", live/mebibyte, got, want)
		}
	}
}
