package cluster

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// soak tells whether time bounds are asserted: only on a machine that does
// nothing else.
func soak() bool { return os.Getenv("LOCKSTEP_SOAK") != "" }

// rounds is how often each mode of delete-and-create is run.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("LOCKSTEP_ROUNDS")
	if text == "" {
		return 2
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("LOCKSTEP_ROUNDS=%q: want a number of at least 1", text)
	}
	return n
}

// faultRounds is how often a drill with a fault is run: half as often, but in a
// soak, which shows all of it.
func faultRounds(t *testing.T) int {
	t.Helper()
	if soak() {
		return rounds(t)
	}
	return (rounds(t) + 1) / 2
}

// seed is where all random moments of a run come from.
var seed = sync.OnceValue(func() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("LOCKSTEP_SEED"), 10, 64); err == nil {
		return n
	}
	return uint64(time.Now().UnixNano())
})

// chance returns the random source of one drill, and tells how to get the same
// again. salt keeps drills and rounds apart.
func chance(t *testing.T, salt uint64) *rand.Rand {
	t.Helper()
	t.Logf("random moments from LOCKSTEP_SEED=%d", seed())
	var key [32]byte // a generator that mixes its whole key, so that near salts are as good as far ones
	binary.LittleEndian.PutUint64(key[:], seed())
	binary.LittleEndian.PutUint64(key[8:], salt)
	return rand.New(rand.NewChaCha8(key))
}

// aside runs the test beside others, unless time bounds are asserted.
func aside(t *testing.T) {
	t.Helper()
	if !soak() {
		t.Parallel()
	}
}
