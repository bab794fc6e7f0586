package planner

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
	wedged []int
	// floors are by role. pairs is the least sum of pairs.
	floors []int32
	pairs  float64
	// certain has, by revision, role and count, how many groups are ready once a row is lowered to the count.
	certain [][][]int32
}

func newBoard(s Slice) *board {
	b := &board{Slice: s, next: s.Wanted()}
	for _, revision := range s.Revisions {
		var rows [][]int32
		for _, row := range revision.Rows {
			rows = append(rows, row.certain())
		}
		b.certain = append(b.certain, rows)
	}
	least, apart := 1.0, 0.0
	for r, role := range s.Roles {
		floor := s.floor(r)
		if b.floors = append(b.floors, floor); role.Target == 0 {
			continue
		}
		if b.intended(r) == 0 { // the pairs of older revisions do without the role
			floor = max(0, role.Target-role.Unavailable)
		}
		least = min(least, float64(floor)/float64(role.Target))
		apart = max(apart, 1/float64(role.Target))
	}
	if b.pairs = least - apart; apart == 0 { // the set wants no group
		b.pairs = 0
	}
	return b
}

func (r Row) certain() []int32 {
	counts := make([]int32, 1, len(r.Ready)+1)
	for i, isReady := range r.Ready {
		counts = append(counts, counts[i])
		if isReady {
			counts[i+1]++
		}
	}
	return counts
}

// ready is how many groups of a row are ready for certain, once it is lowered to a count.
func (b *board) ready(revision, role int, count int32) int32 {
	counts := b.certain[revision][role]
	return counts[min(int(count), len(counts)-1)]
}

// share is the part of what a revision intended that is ready in all its roles at once. A revision that lacks a role
// serves nobody.
func (b *board) share(revision int, counts []int32) float64 {
	return b.least(revision, func(role int) int32 { return b.ready(revision, role, counts[role]) })
}

// promise is the share of a revision once all its groups are ready.
func (b *board) promise(revision int) float64 {
	return b.least(revision, func(role int) int32 { return b.next[revision][role] })
}

// least is the least part of what a revision intended of a role.
func (b *board) least(revision int, of func(role int) int32) float64 {
	least, isAny := 1.0, false
	for r, row := range b.Revisions[revision].Rows {
		if row.Intended > 0 {
			least, isAny = min(least, float64(of(r))/float64(row.Intended)), true
		}
	}
	if !isAny {
		return 0
	}
	return least
}

// standing returns how many groups of each role are ready in complete revisions, and the sum of their pairs.
func (b *board) standing(counts Counts) (ready []int32, pairs float64) {
	ready = make([]int32, len(b.Roles))
	for v := range b.Revisions {
		share := b.share(v, counts[v])
		if share == 0 {
			continue
		}
		pairs += share
		for r := range b.Roles {
			ready[r] += b.ready(v, r, counts[v][r])
		}
	}
	return ready, pairs
}

// Pairs is the sum, over revisions, of the part of what each intended that is ready in all its roles at once.
func (s Slice) Pairs() float64 {
	_, pairs := newBoard(s).standing(s.Wanted())
	return pairs
}

// keeps reports whether a revision may have fewer groups: no role, and no sum of pairs, falls below its floor by it. Ready
// groups of one that would be useful count although it serves nobody now.
func (b *board) keeps(revision int, counts []int32) bool {
	before, pairsBefore := b.standing(b.next)
	ready, pairs := b.standing(b.with(revision, counts))
	if pairs < min(b.pairs, pairsBefore)-slack {
		return false
	}
	isUseful := b.isUseful(revision, pairsBefore)
	for r := range ready {
		stays := b.ready(revision, r, counts[r])
		takes := stays < b.ready(revision, r, b.next[revision][r])
		if ready[r] < min(b.floors[r], before[r]) || isUseful && takes && ready[r]+stays < b.floors[r] {
			return false
		}
	}
	return true
}

// isUseful reports whether an older revision would serve more, once all its groups are ready again, than the set does now.
// Of several, only the one that would serve most is useful, and the oldest of equals: it has served before.
func (b *board) isUseful(revision int, pairs float64) bool {
	promise := b.promise(revision)
	if revision == b.aim || promise <= pairs+slack {
		return false
	}
	for v := range b.Revisions {
		other := b.promise(v)
		if v != b.aim && (other > promise+slack || v > revision && other > promise-slack) {
			return false
		}
	}
	return true
}
