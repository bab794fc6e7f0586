package operator

import "testing"

// Memory is given back once after each burst that is worth it, when the process rests.
func TestABurstIsOverOnce(t *testing.T) {
	var b burst
	over, allocated := 0, uint64(0)
	for _, bytes := range []uint64{64 << 20, 0, 0, 1 << 10, 0, 0, 0, 8 << 20, 0, 0, 0, 0, 0, 30 << 20, 0, 0, 0, 0, 0} {
		if allocated += bytes; b.isOver(allocated, 40<<20) {
			over++
		}
	}
	if over != 2 {
		t.Errorf("over %d times, want 2", over)
	}
}
