package planner

// Slice is one slice of a set as it was read.
type Slice struct {
	// Roles are those of the spec, and then those that only older revisions have.
	Roles []Role
	// Revisions are the target, and then older ones, the newest first.
	Revisions []Revision
}

// Role is what the set wants of a role in each slice.
type Role struct {
	Name string
	// Target is the number of groups that the target revision is to have.
	Target int32
	// Surge and Unavailable are numbers of groups.
	Surge, Unavailable int32
	// Leaving is the number of groups, of any revision, that nobody wants and that still hold nodes.
	Leaving int32
	// IsUnobserved is set while a child of the role may still create groups that its spec does not want any more.
	IsUnobserved bool
}

// Revision has a row for each role, in the order of Slice.Roles.
type Revision struct {
	Name string
	Rows []Row
}

// Row is a role in a revision.
type Row struct {
	// Intended is the number of groups that the set wanted while the revision was its target. It is the role's Target in
	// the target revision, and zero where the revision lacks the role.
	Intended int32
	// Ready has the groups that are wanted now, and whether each is ready. The last one is removed first.
	Ready []bool
}

// Counts are numbers of wanted groups, by revision and role.
type Counts [][]int32

// Wanted returns the counts as they are.
func (s Slice) Wanted() Counts {
	counts := make(Counts, len(s.Revisions))
	for v, revision := range s.Revisions {
		counts[v] = make([]int32, len(s.Roles))
		for r, row := range revision.Rows {
			counts[v][r] = int32(len(row.Ready))
		}
	}
	return counts
}

// ceiling is how many groups of a role may hold nodes.
func (s Slice) ceiling(role int) int32 {
	return max(s.Roles[role].Target, s.intended(role)) + s.Roles[role].Surge
}

// room is how many groups of a role may be added now. A group that leaves takes room until its last pod is gone.
func (s Slice) room(role int) int32 {
	if s.Roles[role].IsUnobserved {
		return 0
	}
	room := s.ceiling(role) - s.Roles[role].Leaving
	for _, revision := range s.Revisions {
		room -= int32(len(revision.Rows[role].Ready))
	}
	return room
}

// floor is how many groups of a role are to be ready, in complete revisions: what the set wanted before and wants now, less
// what may be unavailable. A role that older revisions lack has none.
func (s Slice) floor(role int) int32 {
	return max(0, min(s.Roles[role].Target, s.intended(role))-s.Roles[role].Unavailable)
}

// intended is how many groups of a role the revisions before the target intended at most, or the target itself.
func (s Slice) intended(role int) (most int32) {
	if len(s.Revisions) == 1 {
		return s.Roles[role].Target
	}
	for _, revision := range s.Revisions[1:] {
		most = max(most, revision.Rows[role].Intended)
	}
	return most
}

// window is how far the fastest and the slowest role of a revision may be apart: one group of its smallest role.
func (r Revision) window() float64 {
	apart := 0.0
	for _, row := range r.Rows {
		if row.Intended > 0 {
			apart = max(apart, 1/float64(row.Intended))
		}
	}
	return apart
}
