package rollout

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

// Admit is how many of the gated leaders of a set may be scheduled.
func (r Room) Admit(gated int) int {
	if r.Immediate {
		return max(0, gated-int(r.Stopped))
	}
	return max(0, min(int(r.Allowed-r.Active-r.Holding), gated))
}

// Surplus is how many groups that are stopped have no place beside those that run.
func (r Room) Surplus() int {
	return int(max(0, r.Stopped-max(0, r.Allowed-r.Active)))
}
