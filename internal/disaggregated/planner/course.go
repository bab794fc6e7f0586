package planner

// Course is every step of a slice if each group is ready, or gone, at once.
type Course struct {
	// Steps are the counts after each step. The first are those before it.
	Steps []Counts
	// Floors and Ceilings are by role: how many groups are ready at least, and how many hold nodes at most, whatever
	// becomes ready when.
	Floors, Ceilings []int32
	// Stuck has the roles that leave no room for the target's first groups.
	Stuck []string
}

// mostSteps bounds a course: each step moves a group.
const mostSteps = 10_000

// CourseOf returns the course of a slice.
func CourseOf(s Slice) Course {
	c := Course{Steps: []Counts{s.Wanted()}}
	for r := range s.Roles {
		ceiling := s.ceiling(r)
		if len(s.Revisions) == 1 { // nothing is rolled
			ceiling -= s.Roles[r].Surge
		}
		c.Floors, c.Ceilings = append(c.Floors, s.floor(r)), append(c.Ceilings, max(ceiling, s.ceiling(r)-s.room(r)))
	}
	for range mostSteps {
		var next Counts
		next, c.Stuck = Next(s)
		if next.equal(s.Wanted()) {
			return c
		}
		c.Steps = append(c.Steps, next)
		s = s.after(next)
	}
	return c
}

// after is a slice once the groups of a step are ready, and those that it took are gone.
func (s Slice) after(next Counts) Slice {
	after := Slice{}
	for _, role := range s.Roles {
		role.Leaving, role.IsUnobserved = 0, false
		after.Roles = append(after.Roles, role)
	}
	for v, revision := range s.Revisions {
		rows := make([]Row, len(revision.Rows))
		for r, row := range revision.Rows {
			ready := make([]bool, next[v][r])
			for i := range ready {
				ready[i] = true
			}
			rows[r] = Row{Intended: row.Intended, Ready: ready}
		}
		after.Revisions = append(after.Revisions, Revision{Name: revision.Name, Rows: rows})
	}
	return after
}
