package disaggregated

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/disaggregated/set"
)

// Status is what "status -o json" prints for a set.
type Status struct {
	about
	CreatedAt  metav1.Time        `json:"createdAt"`
	DeletedAt  *metav1.Time       `json:"deletedAt,omitempty"`
	Roles      []RoleStatus       `json:"roles"`
	Slices     []SliceStatus      `json:"slices"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Waiting is what the set waits for.
	Waiting []string `json:"waiting,omitempty"`
}

// RoleStatus counts the groups of a role in all slices.
type RoleStatus struct {
	Name string           `json:"name"`
	Mode dsv1.ScalingMode `json:"mode"`
	// Wanted is absent while the scaler of the role is missing. Updated counts ready and other groups.
	Wanted  *int32 `json:"wanted,omitempty"`
	Ready   int32  `json:"ready"`
	Updated int32  `json:"updated"`
}

// SliceStatus is a slice: the wanted revision first, and then the newest. Pairs is the part of the wanted pairs of roles
// that is ready, added up. Leaving counts groups that nobody wants and that hold nodes.
type SliceStatus struct {
	Index     int              `json:"index"`
	Pairs     float64          `json:"pairs"`
	Leaving   map[string]int32 `json:"leaving,omitempty"`
	Revisions []RevisionStatus `json:"revisions"`
}

// RevisionStatus is a revision of a slice.
type RevisionStatus struct {
	Revision string      `json:"revision"`
	Current  bool        `json:"current,omitempty"`
	Pairs    float64     `json:"pairs"`
	Roles    []RowStatus `json:"roles"`
}

// RowStatus is a role at a revision of a slice. Intended is what the set wanted while the revision was its target.
type RowStatus struct {
	Role     string `json:"role"`
	Intended int32  `json:"intended"`
	Wanted   int32  `json:"wanted"`
	Ready    int32  `json:"ready"`
	Holding  int32  `json:"holding"`
}

// StatusReport returns the status of a set as a report.
func StatusReport(w disaggregated.Snapshot) (page.Report, error) { return statusOf(w) }

func statusOf(w disaggregated.Snapshot) (*Status, error) {
	t, says, err := set.Step(w)
	if err != nil {
		return nil, err
	}
	s := &Status{
		about: aboutOf("DisaggregatedSetStatus", w.Set, t.Revision), CreatedAt: w.Set.CreationTimestamp, DeletedAt: w.Set.DeletionTimestamp,
		Conditions: w.Set.Status.Conditions, Waiting: says,
	}
	if w.Set.Status.ObservedGeneration < w.Set.Generation {
		s.Waiting = append(s.Waiting, fmt.Sprintf("the operator has not observed generation %d", w.Set.Generation))
	}
	for _, role := range t.Roles {
		r := RoleStatus{Name: role.Name, Mode: dsv1.ScalingStatic}
		if disaggregated.IsExternal(role.DisaggregatedRole) {
			r.Mode = dsv1.ScalingExternal
		}
		if role.IsKnown() {
			r.Wanted = new(role.Target * int32(len(t.Slices)))
		}
		s.Roles = append(s.Roles, r)
	}
	for i := range t.Slices {
		s.addSlice(t, &t.Slices[i])
	}
	return s, nil
}

// addSlice adds a slice, and its groups to those of their roles.
func (s *Status) addSlice(t *disaggregated.Table, slice *disaggregated.Slice) {
	shown := SliceStatus{Index: slice.Index, Leaving: maps.Clone(slice.Leaving)}
	maps.DeleteFunc(shown.Leaving, func(_ string, n int32) bool { return n == 0 })
	for _, revision := range slice.Revisions {
		at := RevisionStatus{Revision: revision.Name, Current: revision.Name == t.Revision, Pairs: 1}
		isAny := false
		for i, role := range t.RoleNames(slice) {
			row, has := revision.Rows[role]
			if !has {
				continue
			}
			counts := RowStatus{Role: role, Intended: row.Intended, Wanted: int32(len(row.Ready)), Holding: int32(len(row.Groups))}
			for _, isReady := range row.Ready {
				counts.Ready += map[bool]int32{true: 1}[isReady]
			}
			if row.Intended > 0 {
				at.Pairs, isAny = min(at.Pairs, float64(counts.Ready)/float64(row.Intended)), true
			}
			if i < len(s.Roles) {
				s.Roles[i].Ready += counts.Ready
				s.Roles[i].Updated += map[bool]int32{true: min(counts.Wanted, counts.Holding)}[at.Current]
			}
			at.Roles = append(at.Roles, counts)
		}
		if !isAny {
			at.Pairs = 0
		}
		shown.Pairs += at.Pairs
		shown.Revisions = append(shown.Revisions, at)
	}
	s.Slices = append(s.Slices, shown)
}

// Write writes the roles, then the revisions of each slice, the pairs and what the set waits for.
func (s *Status) Write(p *page.Page) {
	p.Linef("%s %s in namespace %s: revision %s, %s, %s%s", noun, s.Name, s.Namespace, s.Revision, page.Counted(len(s.Roles), "role"),
		page.Counted(len(s.Slices), "slice"), map[bool]string{true: ", rollout paused"}[s.Paused])
	if s.DeletedAt != nil {
		p.Linef("being deleted for %s", p.Age(s.DeletedAt))
	}
	for _, c := range s.Conditions {
		if c.Status == metav1.ConditionTrue {
			p.Linef("%s for %s: %s (%s)", c.Type, p.Age(&c.LastTransitionTime), c.Message, c.Reason)
		}
	}
	var roles, rows []page.Row
	var pairs []string
	for _, r := range s.Roles {
		wanted := "?"
		if r.Wanted != nil {
			wanted = fmt.Sprint(*r.Wanted)
		}
		roles = append(roles, page.Row{r.Name, r.Mode, wanted, r.Ready, r.Updated})
	}
	for _, slice := range s.Slices {
		text := fmt.Sprintf("slice %d: %.0f%% of the pairs are complete", slice.Index, 100*slice.Pairs)
		for _, revision := range slice.Revisions {
			for _, row := range revision.Roles {
				rows = append(rows, page.Row{slice.Index, revision.Revision + map[bool]string{true: " (current)"}[revision.Current], row.Role, row.Wanted, row.Ready, row.Holding})
			}
			text += fmt.Sprintf(", %.0f%% at %s", 100*revision.Pairs, revision.Revision)
		}
		for _, role := range slices.Sorted(maps.Keys(slice.Leaving)) {
			text += fmt.Sprintf("; %s of %s must end", page.Counted(int(slice.Leaving[role]), "group"), role)
		}
		pairs = append(pairs, text)
	}
	p.Table(page.Row{"ROLE", "MODE", "WANTED", "READY", "UPDATED"}, roles)
	p.Table(page.Row{"SLICE", "REVISION", "ROLE", "WANTED", "READY", "HOLDING"}, rows)
	p.Section("pairs", pairs...)
	p.Section("waits for", s.Waiting...)
}
