package planner

import "slices"

// Next returns the next counts, and the roles that keep the target from its first groups whatever becomes ready. Counts
// equal to those of the slice mean that nothing is to be done, or that an event is awaited.
func Next(s Slice) (next Counts, stuck []string) {
	b := newBoard(s)
	b.aim, b.wedged = b.grower(), b.unable()
	b.drain()
	b.grow()
	if b.isStill = b.isSettled() && b.next.equal(s.Wanted()); b.isStill {
		b.drain()
		b.grow()
	}
	return b.next, b.stuck()
}

// unable are the roles without room for a first group of the target beside the last one of an older revision. No group is
// given up for them: the target could not begin.
func (b *board) unable() (roles []int) {
	for r, role := range b.Roles {
		isOld := false
		for v := 1; v < len(b.next); v++ {
			isOld = isOld || b.next[v][r] > 0 && (b.isEmpty(0) || b.share(v, b.next[v]) > 0)
		}
		if role.Target > 0 && b.next[0][r] == 0 && isOld && b.ceiling(r) < 2 {
			roles = append(roles, r)
		}
	}
	return roles
}

// stuck names the roles that keep the target from its first groups: those that are unable still, or where nothing moves,
// each role of which it has none.
func (b *board) stuck() (names []string) {
	isOver := len(b.wedged) == 0 && b.isStill && b.next.equal(b.Wanted())
	for r, role := range b.Roles {
		isOld := slices.ContainsFunc(b.next[1:], func(old []int32) bool { return old[r] > 0 })
		if b.next[0][r] == 0 && isOld && (slices.Contains(b.wedged, r) || isOver && role.Target > 0) {
			names = append(names, role.Name)
		}
	}
	return names
}

// grower is the revision that grows: the target, unless several older revisions leave no room beside its first group. Each
// of them keeps a group of each role until it is retired. Then the one that serves most grows, until the others are gone. One
// that serves nobody does not: it is in the way of its repair. Neither does one that lacks a role of another: the other could
// not be given up.
func (b *board) grower() int {
	if !b.isEmpty(0) {
		return 0
	}
	isBlocked := func(role int) bool {
		needed := int32(1)
		for _, counts := range b.next[1:] {
			needed += min(1, counts[role])
		}
		return needed > 2 && needed >= b.ceiling(role) && b.Roles[role].Target > 0
	}
	grower, most := 0, 0.0
	for r := range b.Roles {
		if !isBlocked(r) {
			continue
		}
		for v := 1; v < len(b.next); v++ {
			if share := b.share(v, b.next[v]); share > most && b.hasRoles(v) {
				grower, most = v, share
			}
		}
	}
	return grower
}

// hasRoles reports whether an older revision has all roles that older revisions have groups of.
func (b *board) hasRoles(revision int) bool {
	for r, row := range b.Revisions[revision].Rows {
		if row.Intended == 0 && slices.ContainsFunc(b.next[1:], func(counts []int32) bool { return counts[r] > 0 }) {
			return false
		}
	}
	return true
}

// isSettled reports whether all wanted groups are ready, and no other holds nodes. No group of an older revision that serves
// nobody is awaited.
func (b *board) isSettled() bool {
	now := b.Wanted()
	for r, role := range b.Roles {
		if role.Leaving > 0 || role.IsUnobserved {
			return false
		}
		for v, revision := range b.Revisions {
			if (v == b.aim || b.share(v, now[v]) > 0) && slices.Contains(revision.Rows[r].Ready, false) {
				return false
			}
		}
	}
	return true
}

func (c Counts) equal(other Counts) bool {
	return slices.EqualFunc(c, other, slices.Equal[[]int32])
}

// IsDone reports whether the target has all its groups, and no older revision has any.
func (s Slice) IsDone() bool {
	for r, role := range s.Roles {
		for v, revision := range s.Revisions {
			if want := map[bool]int32{true: role.Target}[v == 0]; int32(len(revision.Rows[r].Ready)) != want {
				return false
			}
		}
	}
	return true
}
