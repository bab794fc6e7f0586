package rollout

import (
	"cmp"
	"slices"
)

// State is the state of a rolling update. A place is ready or updated with its leader and its workers.
type State struct {
	// Replicas is how many groups are wanted, and Keep is the user's partition: groups below it keep their revision.
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

	// Places has an entry for each group that exists, below Replicas or Running, by rising index. An index without one
	// is not ready.
	Places []Place
}

// Place is the state of one group.
type Place struct {
	Index int32
	// Outdated is set for a leader of another revision.
	Outdated bool
	// Ready and Updated are of the whole group, leader and workers.
	Ready, Updated bool
}

// Course is where a rollout goes next: what the leader StatefulSet is to say.
type Course struct{ Partition, Replicas int32 }

// Next is the next course. A new template starts with no group replaced; then the partition
// falls as far as the budget allows, and rises only to the user's own. While it is paused, no
// template is taken in: Changed then means that the labels of the StatefulSet were edited.
func (r State) Next() Course {
	c := r.planned()
	c.Partition = max(c.Partition, r.Keep)
	if !r.Observed && !r.Changed {
		c = r.await(c)
	}
	if r.Paused {
		c = r.pause(c)
	}
	if !r.Changed {
		c.Partition = r.affordable(c)
	}
	return c
}

// Peak is how many groups there are at most until the rollout ends, if it is not paused.
func (r State) Peak() int32 {
	r.Running, r.Applied = max(r.Running, r.Replicas), r.Replicas
	return max(r.Running, r.planned().Replicas)
}

// Rest is how many groups there are once the rollout ended and so many keep their revision.
func (r State) Rest(kept int32) int32 { return min(r.surged(kept), r.Peak()) }

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
	broken := floor - r.count(0, floor, func(p Place) bool { return p.Ready })
	partition := floor + min(broken, max(r.Running, r.Partition)-floor)
	for top := min(partition, r.Running-1); top >= floor && !r.at(top).isOld(); top-- {
		partition = top // it is down or updated
	}
	return min(partition, r.Partition)
}

// count counts the groups in the range that fit.
func (r State) count(first, end int32, fits func(Place) bool) int32 {
	others := func(p Place) bool { return p.Index < first || p.Index >= end || !fits(p) }
	return int32(len(slices.DeleteFunc(slices.Clone(r.Places), others)))
}

// at is the place of an index.
func (r State) at(index int32) (place Place) {
	if i, exists := slices.BinarySearchFunc(r.Places, index, Place.compare); exists {
		place = r.Places[i]
	}
	return place
}

func (p Place) compare(index int32) int { return cmp.Compare(p.Index, index) }

func (p Place) isDone() bool { return p.Ready && p.Updated }

func (p Place) isOld() bool { return p.Ready && !p.Updated }

// tail is how many groups at the top are done.
func (r State) tail() (done int32) {
	for r.at(r.Running - 1 - done).isDone() {
		done++
	}
	return done
}

// affordable is the partition of a course, held at the first group that the budget does not
// cover. A group that is down costs nothing.
func (r State) affordable(c Course) int32 {
	down, budget := r.Down(), r.Budget(c.Replicas)
	partition := min(r.Partition, r.Replicas)
	for _, lost := range slices.Backward(r.Places) {
		if lost.Index < c.Partition || lost.Index >= partition || !lost.isOld() {
			continue
		}
		if down++; down > budget {
			return lost.Index + 1
		}
	}
	return c.Partition
}

// Down is how many groups are down, or may be at any moment. From the partition on only a group
// that is ready and updated counts as up: the StatefulSet controller may delete any other. It replaces none
// for a template that it was not given yet.
func (r State) Down() int32 { return r.Replicas - r.count(0, r.Replicas, r.isUp) }

func (r State) isUp(p Place) bool {
	return p.Ready && (p.Index < r.Partition || p.Updated || r.Changed)
}

// Serves reports whether a group counts as up, a surge group included.
func (r State) Serves(p Place) bool {
	if p.Index < r.Replicas {
		return r.isUp(p)
	}
	return p.isDone()
}

// Budget is how many groups may be down: one more for each surge group that is ready and stays.
func (r State) Budget(replicas int32) int32 {
	return r.Unavailable + r.count(r.Replicas, min(r.Running, replicas), Place.isDone)
}

// kept is how many groups a rollout in progress has: those wanted, and surge groups while others are not done.
func (r State) kept() int32 {
	if r.Applied != r.Replicas && r.Running <= r.Applied && !r.outdated(0, r.Running) {
		return r.Replicas // scaled at rest
	}
	wanted := r.surged(r.Replicas - r.count(0, r.Replicas, Place.isDone))
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

// outdated reports whether a leader in the range is of another revision.
func (r State) outdated(first, end int32) bool {
	return r.count(first, end, func(p Place) bool { return p.Outdated }) > 0
}

// Lowers reports whether a course gives up groups that were kept until now.
func (r State) Lowers(c Course) bool {
	return !r.Changed && c.Partition < min(r.Partition, r.Replicas)
}
