package rollout

import (
	"cmp"
	"slices"
	"time"
)

// Room is how many groups of a set hold nodes, and how many may. A group has a key instead of an
// ordinal, so the next one can come before the one that it replaces is gone.
type Room struct {
	// Allowed is how many groups may hold room: the replicas, and the surge of a rollout that runs.
	Allowed int32
	// Active is how many leaders live and are admitted, and Holding how many groups have a pod left
	// whose leader is stopped, terminating or gone.
	Active, Holding int32
	// Stopped is how many of those that hold are stopped for good: each keeps the place of one.
	Stopped int32
	// Immediate is set if no leader waits for what terminates.
	Immediate bool
}

// Gated is a leader that waits for room.
type Gated struct {
	Name    string
	Created time.Time
	// Current is set if the leader has the revision that groups should be at.
	Current bool
}

// Admit splits the gated leaders of a set into those that may be scheduled and those that wait. The
// current revision goes first, and then the oldest.
func (r Room) Admit(gated []Gated) (admitted, deferred []Gated) {
	sorted := slices.SortedFunc(slices.Values(gated), func(a, b Gated) int {
		if a.Current != b.Current {
			return map[bool]int{true: -1, false: 1}[a.Current]
		}
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	free := max(0, min(r.free(len(sorted)), len(sorted)))
	return sorted[:free], sorted[free:]
}

// free is how many of the gated leaders there is room for.
func (r Room) free(gated int) int {
	if r.Immediate {
		return gated - int(r.Stopped)
	}
	return int(r.Allowed - r.Active - r.Holding)
}

// Surplus is how many groups that are stopped have no place beside those that run.
func (r Room) Surplus() int {
	return int(max(0, r.Stopped-max(0, r.Allowed-r.Active)))
}
