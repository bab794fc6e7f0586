package planner

import "slices"

// grow raises the revision that grows as far as the ceilings allow, the slowest role first. It begins with all its roles
// or not at all: until then it serves nobody. It stops where all roles are level, unless nothing else moves.
func (b *board) grow() {
	before := slices.Clone(b.next[b.aim])
	rooms := make([]int32, len(b.Roles))
	for r := range b.Roles {
		rooms[r] = b.room(r)
	}
	isStill := b.isSettled() && b.next.equal(b.Wanted())
	if b.isEmpty(b.aim) && !b.begin(rooms) {
		return
	}
	counts, level := b.next[b.aim], before
	for {
		if b.isLevel(b.aim, counts, level) {
			level = slices.Clone(counts)
		}
		role := b.lagging(rooms)
		if role < 0 {
			break
		}
		counts[role]++
		rooms[role]--
	}
	if !isStill || !slices.Equal(level, before) {
		b.next[b.aim] = level
	}
}

func (b *board) begin(rooms []int32) bool {
	for r, row := range b.Revisions[b.aim].Rows {
		if row.Intended > 0 && rooms[r] <= 0 {
			return false
		}
	}
	for r, row := range b.Revisions[b.aim].Rows {
		if row.Intended > 0 {
			b.next[b.aim][r]++
			rooms[r]--
		}
	}
	return true
}

// lagging returns the role that may get a group and has the smallest part of its groups, or -1.
func (b *board) lagging(rooms []int32) int {
	rows, counts := b.Revisions[b.aim].Rows, b.next[b.aim]
	lagging, least, lowest := -1, 0.0, 1.0
	window := b.Revisions[b.aim].window() * float64(max(1, b.older())) // each older revision keeps a last group of each role
	for r, row := range rows {
		if row.Intended > 0 {
			lowest = min(lowest, part(counts[r], row))
		}
	}
	for r, row := range rows {
		if counts[r] >= row.Intended || rooms[r] <= 0 || part(counts[r]+1, row) > lowest+window+slack {
			continue
		}
		if has := part(counts[r], row); lagging < 0 || has < least-slack {
			lagging, least = r, has
		}
	}
	return lagging
}

// older is how many other revisions have groups.
func (b *board) older() (n int) {
	for v := range b.Revisions {
		if v != b.aim && !b.isEmpty(v) {
			n++
		}
	}
	return n
}
