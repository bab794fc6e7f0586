package restart

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Owners says which groups with keys may have entries.
type Owners struct {
	// Living are the groups with a leader, and Kept those that are stopped for good.
	Living, Kept map[int]bool
	// Heirs are the groups that are scheduled now, in order.
	Heirs []Heir
	// Vacant is how many groups more may be scheduled.
	Vacant int
}

// Heir is a group that replaces another one of its revision.
type Heir struct {
	Index    int
	Revision string
}

// Inherit gives each heir without an entry the one with the highest count of its revision whose group
// is gone. Of the other entries whose groups are gone, those with the highest counts stay, as many as
// may still be inherited.
func (s *Status) Inherit(o Owners) {
	s.Started = slices.DeleteFunc(slices.Clone(s.Started), func(entry lwsv1.StartedGroup) bool { return !o.Living[int(entry.Index)] })
	var owned, unowned []lwsv1.GroupRestarts
	for _, entry := range s.Restarts {
		if index := int(entry.Index); o.Living[index] || o.Kept[index] {
			owned = append(owned, entry)
		} else {
			unowned = append(unowned, entry)
		}
	}
	slices.SortFunc(unowned, func(a, b lwsv1.GroupRestarts) int {
		return cmp.Or(cmp.Compare(ptr.Deref(b.Recreations, 0), ptr.Deref(a.Recreations, 0)), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Index, b.Index))
	})
	for _, heir := range o.Heirs {
		of := func(entry lwsv1.GroupRestarts) bool { return entry.Revision == heir.Revision }
		i := slices.IndexFunc(unowned, of)
		if i < 0 || slices.ContainsFunc(owned, func(entry lwsv1.GroupRestarts) bool { return int(entry.Index) == heir.Index }) {
			continue
		}
		entry := unowned[i]
		entry.Index = int32(heir.Index)
		owned, unowned = append(owned, entry), slices.Delete(unowned, i, i+1)
		s.IsNew = true
	}
	s.Restarts = merge(nil, slices.Concat(owned, unowned[:min(len(unowned), max(0, o.Vacant))]), restartsIndex)
	s.bound()
}

// isInherited reports whether another group has the entry of a leader by now.
func (s *Status) isInherited(index int, leader types.UID) bool {
	return slices.ContainsFunc(s.Restarts, func(entry lwsv1.GroupRestarts) bool {
		return entry.Leader == leader && int(entry.Index) != index
	})
}
