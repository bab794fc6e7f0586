package operator

import (
	"os"
	"runtime/debug"
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
