package disaggregated

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/disaggregated/planner"
	"lockstep.dev/lockstep/internal/rollout"
)

// Table is what decisions about a set read: its rows, built once.
type Table struct {
	*Snapshot
	Revision string
	Roles    []Role
	Slices   []Slice
}

// Slice is one slice: the rows of its revisions, the target's first, and then the newest.
type Slice struct {
	Index     int
	Revisions []Revision
	// Leaving counts, by role, groups that nobody wants and that hold nodes.
	Leaving map[string]int32
}

// Revision is a revision of a slice.
type Revision struct {
	Name string
	Rows map[string]Row
}

// Row is a role of a slice at a revision.
type Row struct {
	Child *lwsv1.LeaderWorkerSet
	// Intended is how many groups the set wanted while the revision was its target.
	Intended int32
	Groups   []Group
	// Ready has the groups that are wanted, and whether each is ready: the one that is removed first is the last.
	Ready []bool
}

// Of builds the table of a set.
func Of(w Snapshot) (*Table, error) {
	revision, err := RevisionOf(w.Set.Spec.Roles)
	if err != nil {
		return nil, err
	}
	t := &Table{Snapshot: &w, Revision: revision, Roles: rolesOf(&w)}
	pods := map[string][]*corev1.Pod{}
	for _, pod := range w.Pods {
		pods[pod.Labels[lwsv1.SetNameLabelKey]] = append(pods[pod.Labels[lwsv1.SetNameLabelKey]], pod)
	}
	for index := range Slices(w.Set) {
		t.Slices = append(t.Slices, t.slice(index, pods))
	}
	return t, nil
}

// slice builds the rows of a slice. A pod that is older than the set belongs to an earlier incarnation of it, and one that is
// older than its child to an earlier child: it leaves.
func (t *Table) slice(index int, pods map[string][]*corev1.Pod) Slice {
	s := Slice{Index: index, Leaving: map[string]int32{}}
	rows := map[string]map[string]Row{t.Revision: {}}
	counted := map[string]bool{}
	for _, child := range slices.Concat(t.Children.Orphans, t.Children.Foreign) {
		counted[child.Name] = true // their groups are not of the set
	}
	for _, child := range t.Children.Owned {
		p := PlaceOf(child)
		if p.Slice != index {
			continue
		}
		there := since(t.Set.CreationTimestamp.Time, pods[child.Name])
		row := Row{Child: child, Intended: Intended(child), Groups: groupsOf(since(child.CreationTimestamp.Time, there))}
		if p.Revision == t.Revision {
			row.Intended = 0
		}
		var leaving int32
		row.Ready, leaving = wanted(row.Groups, ptr.Deref(child.Spec.Replicas, 1))
		leaving += int32(len(groupsOf(there)) - len(row.Groups))
		if s.Leaving[p.Role] += leaving; rows[p.Revision] == nil {
			rows[p.Revision] = map[string]Row{}
		}
		rows[p.Revision][p.Role] = row
		counted[child.Name] = true
	}
	for child, left := range pods {
		if p := PlaceOf(left[0]); p.Slice == index && !counted[child] {
			s.Leaving[p.Role] += int32(len(groupsOf(since(t.Set.CreationTimestamp.Time, left))))
		}
	}
	for _, role := range t.Roles {
		row := rows[t.Revision][role.Name]
		row.Intended = role.Target
		rows[t.Revision][role.Name] = row
	}
	s.Revisions = ordered(rows, t.Revision)
	return s
}

// since returns the pods that were not created before a time.
func since(at time.Time, pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod.CreationTimestamp.Time.Before(at) })
}

// ordered returns revisions with the target first, and then the newest.
func ordered(rows map[string]map[string]Row, target string) (all []Revision) {
	born := func(name string) (at time.Time) {
		for _, row := range rows[name] {
			if row.Child != nil && row.Child.CreationTimestamp.After(at) {
				at = row.Child.CreationTimestamp.Time
			}
		}
		return at
	}
	names := slices.SortedFunc(maps.Keys(rows), func(a, b string) int {
		isTarget := func(name string) int { return map[bool]int{true: 1}[name == target] }
		return cmp.Or(isTarget(b)-isTarget(a), born(b).Compare(born(a)), cmp.Compare(a, b))
	})
	for _, name := range names {
		all = append(all, Revision{name, rows[name]})
	}
	return all
}

// RoleNames are the roles of the spec, and then those that only older revisions of the slice have.
func (t *Table) RoleNames(s *Slice) (names []string) {
	for _, role := range t.Roles {
		names = append(names, role.Name)
	}
	for _, revision := range s.Revisions {
		for _, name := range slices.Sorted(maps.Keys(revision.Rows)) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Planned returns a slice as the planner reads it.
func (t *Table) Planned(s *Slice) planner.Slice {
	var p planner.Slice
	names := t.RoleNames(s)
	for i, name := range names {
		role := planner.Role{Name: name, Leaving: s.Leaving[name], Surge: 1}
		if i < len(t.Roles) {
			role.Target = t.Roles[i].Target
			role.Surge, role.Unavailable = rollout.Budget(t.Roles[i].Spec.RolloutStrategy.RollingUpdateConfiguration, role.Target)
		}
		if t.Set.Annotations[dsv1.SurgeOneAnnotationKey] == "true" {
			role.Surge = max(role.Surge, 1)
		}
		p.Roles = append(p.Roles, role)
	}
	for _, revision := range s.Revisions {
		planned := planner.Revision{Name: revision.Name}
		for i, name := range names {
			row := revision.Rows[name]
			planned.Rows = append(planned.Rows, planner.Row{Intended: row.Intended, Ready: row.Ready})
			if row.Child != nil && row.Child.Status.ObservedGeneration < row.Child.Generation {
				p.Roles[i].IsUnobserved = true
			}
		}
		p.Revisions = append(p.Revisions, planned)
	}
	return p
}
