package rollout

// State is the state of a rolling update. A place is ready or updated with its leader and its
// workers.
type State struct {
	// Replicas is how many groups are wanted, and Keep is the user's partition:
	// groups below it keep their revision.
	Replicas, Keep int32
	// Unavailable and Surge are the user's budget, in groups.
	Unavailable, Surge int32

	// Running, Partition and Applied are of the leader StatefulSet: its replicas, its partition,
	// and the number of groups that were wanted when it was last written.
	Running, Partition, Applied int32
	// Changed is set when the template is not the one the StatefulSet was given.
	Changed bool
	// Observed is set when the StatefulSet controller has seen the present spec.
	Observed bool
	// Paused is set while the user pauses the rollout.
	Paused bool

	// Places has an entry for each ordinal below both Replicas and Running.
	Places []Place
}

// Place is the state of one ordinal. The zero value is no group.
type Place struct {
	// Outdated is set for a leader of another revision.
	Outdated bool
	// Ready and Updated are of the whole group, leader and workers.
	Ready, Updated bool
}

// Course is where a rollout goes next: what the leader StatefulSet is to say.
type Course struct{ Partition, Replicas int32 }

// Next is the next course. A new template starts with no group replaced; then the partition
// falls as far as the budget allows, and rises only to the user's own.
func (r State) Next() Course {
	c := r.planned()
	c.Partition = max(c.Partition, r.Keep)
	if r.Changed && r.Paused {
		return r.pause(c) // only the labels of the StatefulSet were edited
	}
	if r.Changed {
		return c
	}
	if !r.Observed {
		c = r.await(c)
	}
	if r.Paused {
		c = r.pause(c)
	}
	c.Partition = r.affordable(c)
	return c
}

// await holds a rollout until the StatefulSet controller has observed the spec: it may still act
// on the former one, and does not report which leaders are of the former template. Surge groups
// stay, and none is added unless the user scales.
func (r State) await(c Course) Course {
	c.Partition = max(c.Partition, min(r.Partition, r.Replicas))
	if r.Applied == r.Replicas {
		c.Replicas = max(r.Replicas, min(r.Running, r.Replicas+r.Surge))
	}
	return c
}

// pause holds a rollout where it stands: what the partition has granted is
// granted, and nothing more is. No surge group is lent to what does not move.
func (r State) pause(c Course) Course {
	c.Partition = max(c.Partition, min(r.Partition, r.Replicas))
	c.Replicas = max(r.Replicas, min(c.Replicas, r.Running))
	return c
}

// planned is the course by the table of the API, without the user's partition.
func (r State) planned() Course {
	switch {
	case r.Changed && r.Running < r.Replicas:
		return Course{Partition: r.Running, Replicas: r.Replicas}
	case r.Changed:
		return Course{Partition: r.Replicas, Replicas: r.surged(r.Replicas)}
	case r.Partition == 0 && r.Running == r.Replicas:
		return Course{Partition: 0, Replicas: r.Replicas}
	case r.Running < r.Replicas: // new groups are at the new template from the start
		return Course{Partition: r.Partition, Replicas: r.Replicas}
	case r.Applied != r.Replicas:
		return Course{Partition: min(r.Partition, r.Replicas+r.Surge), Replicas: r.kept()}
	}
	return Course{Partition: r.stepped(), Replicas: r.kept()}
}

// stepped is the partition of the next step. The groups between the step and the updated ones at
// the top may be down together; broken old groups count for the step.
func (r State) stepped() int32 {
	step := r.Unavailable + r.Running - r.Replicas
	floor := max(0, r.Running-r.tail()-step)
	partition := floor
	for i := range floor {
		if !r.Places[i].Ready {
			partition++
		}
	}
	for i := min(partition, r.Running-1); i >= floor; i-- {
		if r.Places[i].Ready && !r.Places[i].Updated {
			break
		}
		partition = i // it is down or updated
	}
	return min(partition, r.Partition)
}

// tail is how many groups at the top are done.
func (r State) tail() int32 {
	var done int32
	for i := r.Running - 1; i >= 0 && r.Places[i].Ready && r.Places[i].Updated; i-- {
		done++
	}
	return done
}

// affordable is the partition of a course, held at the first group that the budget does not
// cover. A group that is down costs nothing.
func (r State) affordable(c Course) int32 {
	down, budget := r.Down(), r.Budget(c.Replicas)
	partition := min(r.Partition, r.Replicas)
	if partition <= c.Partition {
		return c.Partition
	}
	for ; partition > c.Partition; partition-- {
		lost := r.Places[partition-1]
		if !lost.Ready || lost.Updated {
			continue
		}
		if down++; down > budget {
			break
		}
	}
	return partition
}

// Down is how many groups are down, or may be at any moment. From the partition on only a group
// that is ready and updated counts as up: the StatefulSet controller may delete any other.
func (r State) Down() int32 {
	var down int32
	for i := range r.Replicas {
		if !r.available(i) {
			down++
		}
	}
	return down
}

func (r State) available(i int32) bool {
	return r.Places[i].Ready && (i < r.Partition || r.Places[i].Updated)
}

// Serves reports whether a group counts as up, a surge group included.
func (r State) Serves(i int32) bool {
	if i < r.Replicas {
		return r.available(i)
	}
	return r.Places[i].Ready && r.Places[i].Updated
}

// Budget is how many groups may be down: one more for each surge group that is ready and stays.
func (r State) Budget(replicas int32) int32 {
	budget := r.Unavailable
	for i := r.Replicas; i < min(r.Running, replicas); i++ {
		if r.Places[i].Ready && r.Places[i].Updated {
			budget++
		}
	}
	return budget
}

// kept is how many groups a rollout in progress has: those wanted, and surge groups while others
// are not done.
func (r State) kept() int32 {
	if r.Applied != r.Replicas && r.Running <= r.Applied && !r.outdated(0, r.Running) {
		return r.Replicas // scaled at rest
	}
	wanted := r.surged(r.unready())
	if r.outdated(r.Keep, r.Replicas) {
		return wanted
	}
	return max(r.Replicas, min(wanted, r.Running)) // what only starts up or broke needs no surge
}

// surged is how many groups there are while some are not done: all surge groups first, then one
// for each group that is not done beyond those that may be down.
func (r State) surged(unready int32) int32 {
	if unready > r.Surge {
		return r.Replicas + r.Surge
	}
	return r.Replicas + max(0, unready-r.Unavailable)
}

// unready is how many wanted groups are not both ready and updated.
func (r State) unready() int32 {
	var unready int32
	for i := range r.Replicas {
		if !r.Places[i].Ready || !r.Places[i].Updated {
			unready++
		}
	}
	return unready
}

// outdated reports whether a leader in the range is of another revision.
func (r State) outdated(first, end int32) bool {
	for i := first; i < end; i++ {
		if r.Places[i].Outdated {
			return true
		}
	}
	return false
}

// Lowers reports whether a course gives up groups that were kept until now.
func (r State) Lowers(c Course) bool {
	return !r.Changed && c.Partition < min(r.Partition, r.Replicas)
}
