package planner

import (
	"cmp"
	"math"
	"slices"
)

// drain lowers older revisions as far as the floors allow: those that serve nobody first, and then the newest. Last, it
// lowers what the revision that grows has too many of.
func (b *board) drain() {
	var older []int
	for v := range b.Revisions {
		if v != b.aim && !b.isEmpty(v) {
			older = append(older, v)
		}
	}
	serves := func(v int) int { return map[bool]int{true: 1}[b.share(v, b.next[v]) > 0] }
	slices.SortStableFunc(older, func(x, y int) int { return cmp.Compare(serves(x), serves(y)) })
	for _, v := range older {
		if !b.retire(v) && len(b.wedged) == 0 {
			b.lower(v, 1)
		}
	}
	b.lower(b.aim, 0)
}

func (b *board) isEmpty(revision int) bool { return slices.Max(b.next[revision]) == 0 }

// retire lowers all roles of a revision to zero at once, if that is allowed: with one role less, it would serve nobody.
func (b *board) retire(revision int) bool {
	none := make([]int32, len(b.Roles))
	if !b.keeps(revision, none) {
		return false
	}
	b.next[revision] = none
	return true
}

// lower lowers a revision group by group: those that cost no part of a pair, and those of the role that costs the least.
// The others follow for nothing once it is lower. least is how many groups each role keeps; the revision that grows keeps
// what the set wants.
func (b *board) lower(revision int, least int32) {
	for costly := -1; ; {
		role, costs := b.cheapest(revision, least, costly)
		if role < 0 {
			return
		}
		if costs {
			costly = role
		}
		b.next[revision][role]--
	}
}

// cheapest returns the role of a revision that is to lose a group, or -1, and whether that costs pairs. Only the role
// costly may, if there is one. Of roles that cost as much, the slowest is first.
func (b *board) cheapest(revision int, least int32, costly int) (cheapest int, costs bool) {
	_, before := b.standing(b.next)
	prices, lowest := make([]float64, len(b.Roles)), math.Inf(1)
	for r := range b.Roles {
		if b.has(revision, r, least) {
			_, after := b.standing(b.with(revision, b.less(revision, r)))
			prices[r] = before - after
			lowest = min(lowest, prices[r])
		}
	}
	cheapest, most := -1, 0.0
	for r, row := range b.Revisions[revision].Rows {
		isTooDear := prices[r] > slack && (costly >= 0 && costly != r || prices[r] > lowest+slack && !b.isStill)
		part := part(b.next[revision][r], row)
		if !b.has(revision, r, least) || isTooDear || part < most+slack {
			continue
		}
		counts := b.less(revision, r)
		if (revision == b.aim || b.isLevel(revision, counts, b.next[revision])) && b.keeps(revision, counts) {
			cheapest, most, costs = r, part, prices[r] > slack
		}
	}
	return cheapest, costs
}

// has reports whether a role of a revision has groups beyond those that it keeps: none of a role that it lacks, and none,
// where it serves nobody, of one that the revision that grows lacks and has no room for.
func (b *board) has(revision, role int, least int32) bool {
	row := b.Revisions[revision].Rows[role]
	switch {
	case revision == b.aim:
		least = row.Intended
	case row.Intended == 0, b.share(revision, b.next[revision]) == 0 && b.next[b.aim][role] == 0 && b.free(role) < 1:
		least = 0
	}
	return b.next[revision][role] > least
}

// free is how many groups of a role may be added to those that are wanted next.
func (b *board) free(role int) int32 {
	free := b.ceiling(role) - b.Roles[role].Leaving
	for _, counts := range b.next {
		free -= counts[role]
	}
	return free
}

// less returns the next counts of a revision with one group less of a role.
func (b *board) less(revision, role int) []int32 {
	counts := slices.Clone(b.next[revision])
	counts[role]--
	return counts
}

// with returns the next counts with others of a revision.
func (b *board) with(revision int, counts []int32) Counts {
	all := slices.Clone(b.next)
	all[revision] = counts
	return all
}

// part is the part that a count is of what the row intended.
func part(count int32, row Row) float64 {
	return float64(count) / float64(max(1, row.Intended))
}

// isLevel reports whether the whole parts of all roles, over all revisions, stay within the widest window, or come closer.
// Groups above what is wanted surge, and a role that one of the revisions lacks has no whole part.
func (b *board) isLevel(revision int, counts, before []int32) bool {
	widest := 0.0
	for _, r := range b.Revisions {
		widest = max(widest, r.window())
	}
	return b.apart(b.with(revision, counts)) <= max(widest, b.apart(b.with(revision, before)))+slack
}

// apart is how far the whole parts of roles are apart.
func (b *board) apart(counts Counts) float64 {
	low, high := 1.0, 0.0
	for r := range b.Roles {
		whole, isWhole := 0.0, true
		for v, revision := range b.Revisions {
			whole += part(counts[v][r], revision.Rows[r])
			isWhole = isWhole && revision.Rows[r].Intended > 0
		}
		if isWhole {
			low, high = min(low, whole), max(high, min(1, whole))
		}
	}
	return high - low
}
