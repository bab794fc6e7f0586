package cluster

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait for something that must come. It is far beyond
// what anything takes, so that a slow machine is not mistaken for a broken one.
const patience = 150 * time.Second

// program returns the absolute path of a built program.
func program(name string) (string, error) {
	dir := os.Getenv("LOCKSTEP_BIN")
	if dir == "" {
		dir = filepath.Join("..", "..", "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", errMissing{path: path}
	}
	return path, nil
}

// errMissing says that a program was not built.
type errMissing struct{ path string }

func (e errMissing) Error() string { return e.path + " is missing: run make build" }

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
