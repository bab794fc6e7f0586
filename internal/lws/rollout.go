package lws

// rollout is the state of a rolling update. A place is ready or updated with its leader and its
// workers.
type rollout struct {
	// replicas is how many groups are wanted, and keep is the user's partition:
	// groups below it keep their revision.
	replicas, keep int32
	// unavailable and surge are the user's budget, in groups.
	unavailable, surge int32

	// running, partition and applied are of the leader StatefulSet: its replicas, its partition,
	// and the number of groups that were wanted when it was last written.
	running, partition, applied int32
	// changed is set when the template is not the one the StatefulSet was given.
	changed bool
	// observed is set when the StatefulSet controller has seen the present spec.
	observed bool
	// paused is set while the user pauses the rollout.
	paused bool

	// places has an entry for each ordinal below both replicas and running.
	places []place
}

// place is the state of one ordinal. The zero value is no group.
type place struct {
	// outdated is set for a leader of another revision.
	outdated bool
	// ready and updated are of the whole group, leader and workers.
	ready, updated bool
}

// course is where a rollout goes next: what the leader StatefulSet is to say.
type course struct{ partition, replicas int32 }

// next is the next course. A new template starts with no group replaced; then the partition
// falls as far as the budget allows, and rises only to the user's own.
func (r rollout) next() course {
	c := r.planned()
	c.partition = max(c.partition, r.keep)
	if r.changed && r.paused {
		return r.pause(c) // only the labels of the StatefulSet were edited
	}
	if r.changed {
		return c
	}
	if !r.observed {
		c = r.await(c)
	}
	if r.paused {
		c = r.pause(c)
	}
	c.partition = r.affordable(c)
	return c
}

// await holds a rollout until the StatefulSet controller has observed the spec: it may still act
// on the former one, and does not report which leaders are of the former template. Surge groups
// stay, and none is added unless the user scales.
func (r rollout) await(c course) course {
	c.partition = max(c.partition, min(r.partition, r.replicas))
	if r.applied == r.replicas {
		c.replicas = max(r.replicas, min(r.running, r.replicas+r.surge))
	}
	return c
}

// planned is the course by the table of the API, without the user's partition.
func (r rollout) planned() course {
	switch {
	case r.changed && r.running < r.replicas:
		return course{partition: r.running, replicas: r.replicas}
	case r.changed:
		return course{partition: r.replicas, replicas: r.surged(r.replicas)}
	case r.partition == 0 && r.running == r.replicas:
		return course{partition: 0, replicas: r.replicas}
	case r.running < r.replicas: // new groups are at the new template from the start
		return course{partition: r.partition, replicas: r.replicas}
	case r.applied != r.replicas:
		return course{partition: min(r.partition, r.replicas+r.surge), replicas: r.kept()}
	}
	return course{partition: r.stepped(), replicas: r.kept()}
}

// stepped is the partition of the next step. The groups between the step and the updated ones at
// the top may be down together; broken old groups count for the step.
func (r rollout) stepped() int32 {
	step := r.unavailable + r.running - r.replicas
	floor := max(0, r.running-r.tail()-step)
	partition := floor
	for i := range floor {
		if !r.places[i].ready {
			partition++
		}
	}
	for i := min(partition, r.running-1); i >= floor; i-- {
		if r.places[i].ready && !r.places[i].updated {
			break
		}
		partition = i // it is down or updated
	}
	return min(partition, r.partition)
}

// tail is how many groups at the top are done.
func (r rollout) tail() int32 {
	var done int32
	for i := r.running - 1; i >= 0 && r.places[i].ready && r.places[i].updated; i-- {
		done++
	}
	return done
}

// affordable is the partition of a course, held at the first group that the budget does not
// cover. A group that is down costs nothing.
func (r rollout) affordable(c course) int32 {
	down, budget := r.down(), r.budget(c.replicas)
	partition := min(r.partition, r.replicas)
	if partition <= c.partition {
		return c.partition
	}
	for ; partition > c.partition; partition-- {
		lost := r.places[partition-1]
		if !lost.ready || lost.updated {
			continue
		}
		if down++; down > budget {
			break
		}
	}
	return partition
}

// down is how many groups are down, or may be at any moment. From the partition on only a group
// that is ready and updated counts as up: the StatefulSet controller may delete any other.
func (r rollout) down() int32 {
	var down int32
	for i := range r.replicas {
		down += one(!r.available(i))
	}
	return down
}

func (r rollout) available(i int32) bool {
	return r.places[i].ready && (i < r.partition || r.places[i].updated)
}

// budget is how many groups may be down: one more for each surge group that is ready and stays.
func (r rollout) budget(replicas int32) int32 {
	budget := r.unavailable
	for i := r.replicas; i < min(r.running, replicas); i++ {
		budget += one(r.places[i].ready && r.places[i].updated)
	}
	return budget
}

// kept is how many groups a rollout in progress has: those wanted, and surge groups while others
// are not done.
func (r rollout) kept() int32 {
	if r.applied != r.replicas && r.running <= r.applied && !r.outdated(0, r.running) {
		return r.replicas // scaled at rest
	}
	wanted := r.surged(r.unready())
	if r.outdated(r.keep, r.replicas) {
		return wanted
	}
	return max(r.replicas, min(wanted, r.running)) // what only starts up or broke needs no surge
}

// surged is how many groups there are while some are not done: all surge groups first, then one
// for each group that is not done beyond those that may be down.
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

// outdated reports whether a leader in the range is of another revision.
func (r rollout) outdated(first, end int32) bool {
	for i := first; i < end; i++ {
		if r.places[i].outdated {
			return true
		}
	}
	return false
}
