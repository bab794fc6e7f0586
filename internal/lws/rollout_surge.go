package lws

// kept is how many groups there are to be beside a rollout under way: those
// wanted, and surge groups for as long as others are not done.
func (r rollout) kept() int32 {
	if r.applied != r.replicas && r.running <= r.applied && !r.outdated(0, r.running) {
		return r.replicas // scaled at rest: no surge is lent to anybody
	}
	wanted := r.surged(r.unready())
	if r.outdated(r.keep, r.replicas) {
		return wanted
	}
	return max(r.replicas, min(wanted, r.running)) // what only starts up or broke needs no surge
}

// surged is how many groups there are to be while some are not done: all surge
// groups first, then one for each that is not done beyond those that may be away.
func (r rollout) surged(unready int32) int32 {
	if unready > r.surge {
		return r.replicas + r.surge
	}
	return r.replicas + max(0, unready-r.unavailable)
}

// unready is how many wanted groups are not both ready and updated.
func (r rollout) unready() int32 {
	var unready int32
	for i := range r.replicas {
		unready += one(!r.places[i].ready || !r.places[i].updated)
	}
	return unready
}

// outdated tells whether a leader of another revision stands at an ordinal from
// first up to but not including end.
func (r rollout) outdated(first, end int32) bool {
	for i := first; i < end; i++ {
		if r.places[i].outdated {
			return true
		}
	}
	return false
}
