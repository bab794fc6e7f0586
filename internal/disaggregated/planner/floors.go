package planner

import "slices"

// slack is what fractions may differ by and count as equal.
const slack = 1e-9

// board is a slice with the counts of the next step.
type board struct {
	Slice
	next Counts
	// aim is the revision that grows, while all others shrink.
	aim int
	// isStill is set once nothing else moves, and nothing is awaited: then any role may cost pairs.
	isStill bool
	// wedged has the roles for which nothing but whole revisions is given up.
	wedged []string
	// floors are by role. pairs is the least sum of pairs.
	floors []int32
	pairs  float64
}

func newBoard(s Slice, aim int) *board {
	b := &board{Slice: s, next: s.Wanted(), aim: aim, pairs: 1}
	apart := 0.0
	for r, role := range s.Roles {
		b.floors = append(b.floors, s.floor(r))
		if role.Target == 0 {
			continue
		}
		least := b.floors[r]
		if !s.isOld(r) { // the pairs of older revisions do without the role
			least = max(0, role.Target-role.Unavailable)
		}
		b.pairs = min(b.pairs, float64(least)/float64(role.Target))
		apart = max(apart, 1/float64(role.Target))
	}
	if apart == 0 { // the set wants no group
		b.pairs = 0
	}
	b.pairs -= apart
	return b
}

// isOld reports whether an older revision has the role, or no older revision exists.
func (s Slice) isOld(role int) bool {
	has := func(r Revision) bool { return r.Rows[role].Intended > 0 }
	return len(s.Revisions) == 1 || slices.ContainsFunc(s.Revisions[1:], has)
}

// ready is how many groups of a row are ready for certain, once it is lowered to n.
func (r Row) ready(n int32) (ready int32) {
	for _, isReady := range r.Ready[:min(int(n), len(r.Ready))] {
		if isReady {
			ready++
		}
	}
	return ready
}

// share is the part of what a revision intended that is ready in all its roles at once. A revision that lacks a role
// serves nobody.
func (r Revision) share(counts []int32) float64 {
	share, isAny := 1.0, false
	for i, row := range r.Rows {
		if row.Intended > 0 {
			share, isAny = min(share, float64(row.ready(counts[i]))/float64(row.Intended)), true
		}
	}
	if !isAny {
		return 0
	}
	return share
}

// standing returns how many groups of each role are ready in complete revisions, and the sum of their pairs.
func (b *board) standing(counts Counts) (ready []int32, pairs float64) {
	ready = make([]int32, len(b.Roles))
	for v, revision := range b.Revisions {
		share := revision.share(counts[v])
		if share == 0 {
			continue
		}
		pairs += share
		for r, row := range revision.Rows {
			ready[r] += row.ready(counts[v][r])
		}
	}
	return ready, pairs
}

// Pairs is the sum, over revisions, of the part of what each intended that is ready in all its roles at once.
func (s Slice) Pairs() float64 {
	_, pairs := (&board{Slice: s}).standing(s.Wanted())
	return pairs
}

// keeps reports whether a revision may have fewer groups: no role, and no sum of pairs, falls below its floor by it.
func (b *board) keeps(revision int, counts []int32) bool {
	before, pairsBefore := b.standing(b.next)
	ready, pairs := b.standing(b.with(revision, counts))
	if pairs < min(b.pairs, pairsBefore)-slack {
		return false
	}
	for r := range ready {
		if ready[r] < min(b.floors[r], before[r]) || ready[r] < b.floors[r] && b.takesUseful(revision, r, counts[r]) {
			return false
		}
	}
	return true
}

// takesUseful reports whether ready groups of an older revision would be lost whose partners may be ready again soon. The
// set itself may have asked for fewer of its target.
func (b *board) takesUseful(revision, role int, count int32) bool {
	row := b.Revisions[revision].Rows[role]
	return revision != b.aim && row.ready(count) < row.ready(b.next[revision][role])
}
