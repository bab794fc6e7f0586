// Package disaggregated is what kubectl lockstep does with DisaggregatedSets: show one with its plan, and change one.
//
// It reads live, with the user's rights, and decides with the operator's functions. It writes nothing but the set. It
// refuses to know flags, and how far a step may go: package planner says that.
package disaggregated

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/cli/cluster"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/condition"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/disaggregated/set"
	"lockstep.dev/lockstep/internal/disaggregatedcache"
)

// Noun is the kind in errors.
const Noun = "disaggregatedset"

// Reader reads a report on a set. The error is NotFound if there is none.
type Reader = func(*cluster.Session, types.NamespacedName) (page.Report, error)

// Read returns a reader for a kind of report.
func Read[R page.Report](ctx context.Context, report func(disaggregated.Snapshot) (R, error)) Reader {
	return func(s *cluster.Session, key types.NamespacedName) (page.Report, error) {
		w, err := read(ctx, s.Live, key, s.Now())
		if err != nil {
			return nil, err
		}
		return report(w)
	}
}

// Answers returns what status and plan say of a set.
func Answers(ctx context.Context, live client.Reader, key types.NamespacedName, now time.Time) (status, plan page.Report, err error) {
	w, err := read(ctx, live, key, now)
	if err != nil {
		return nil, nil, err
	}
	if status, err = Status(w); err == nil {
		plan, err = Plan(w)
	}
	return status, plan, err
}

// read reads a set and all that bears its name.
func read(ctx context.Context, live client.Reader, key types.NamespacedName, now time.Time) (disaggregated.Snapshot, error) {
	observer := &disaggregatedcache.Observer{Sets: live, Beside: live, Live: live, IsLive: true}
	w, err := observer.Set(ctx, key, now)
	slices.SortFunc(w.Records.Owned, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Name, b.Name))
	})
	return w, err
}

// about says which set a report is about, and what its roles are to run.
type about struct {
	metav1.TypeMeta `json:",inline"`
	Namespace       string    `json:"namespace"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid,omitempty"`
	Revision        string    `json:"revision"`
	Paused          bool      `json:"paused,omitempty"`
}

func aboutOf(kind string, set *dsv1.DisaggregatedSet, revision string) about {
	return about{page.Kind(kind), set.Namespace, set.Name, set.UID, revision, isPaused(set)}
}

func isPaused(set *dsv1.DisaggregatedSet) bool {
	return set.Annotations[lwsv1.PausedAnnotationKey] == lwsv1.PausedValue
}

// keyOf returns the revision that a record keeps, and title names it with its number.
func keyOf(record *appsv1.ControllerRevision) string { return record.Labels[dsv1.RevisionLabelKey] }

func title(record *appsv1.ControllerRevision) string {
	return fmt.Sprintf("%d (%s)", record.Revision, keyOf(record))
}

// SetStatus is what "status -o json" prints for a set. Roles are of all slices and revisions.
type SetStatus struct {
	about
	CreatedAt  metav1.Time        `json:"createdAt"`
	DeletedAt  *metav1.Time       `json:"deletedAt,omitempty"`
	Roles      []Counts           `json:"roles"`
	Rows       []Counts           `json:"rows"`
	Pairs      []Pairs            `json:"pairs"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Waiting    []string           `json:"waiting,omitempty"`
	// old counts the groups that must end.
	old int32
}

// Counts are groups of a role. Those of a row are of one slice and revision. Holding counts groups that have a pod.
type Counts struct {
	Role     string           `json:"role"`
	Mode     dsv1.ScalingMode `json:"mode,omitempty"`
	Slice    *int             `json:"slice,omitempty"`
	Revision string           `json:"revision,omitempty"`
	Intended int32            `json:"intended,omitempty"`
	Wanted   int32            `json:"wanted"`
	Ready    int32            `json:"ready"`
	Updated  int32            `json:"updated"`
	Holding  int32            `json:"holding"`
}

// Pairs is the part of the wanted pairs of a slice whose roles are all ready, at one revision or in sum.
type Pairs struct {
	Slice    int     `json:"slice"`
	Revision string  `json:"revision,omitempty"`
	Complete float64 `json:"complete"`
}

// Status returns the status of a set.
func Status(w disaggregated.Snapshot) (*SetStatus, error) {
	t, says, err := set.Step(w)
	if err != nil {
		return nil, err
	}
	s := &SetStatus{
		about: aboutOf("DisaggregatedSetStatus", w.Set, t.Revision), CreatedAt: w.Set.CreationTimestamp, DeletedAt: w.Set.DeletionTimestamp,
		Conditions: w.Set.Status.Conditions, Waiting: withHindrances(w.Set, says),
	}
	for _, role := range t.Roles {
		mode := map[bool]dsv1.ScalingMode{true: dsv1.ScalingExternal, false: dsv1.ScalingStatic}[disaggregated.IsExternal(role.DisaggregatedRole)]
		s.Roles = append(s.Roles, Counts{Role: role.Name, Mode: mode, Wanted: role.Target * int32(len(t.Slices))})
	}
	for i := range t.Slices {
		s.addSlice(t, &t.Slices[i])
	}
	if s.Paused && len(s.Rows) > len(s.Roles)*len(t.Slices) {
		s.Waiting = append(s.Waiting, "the rollout is paused; resume it with: kubectl lockstep rollout resume dset/"+s.Name+" -n "+s.Namespace)
	}
	for _, child := range w.Children.Owned { // of slices that the set has no more
		if place, n := disaggregated.PlaceOf(child), max(ptr.Deref(child.Spec.Replicas, 1), child.Status.Replicas); place.Slice >= len(t.Slices) {
			s.old += n
			s.Waiting = append(s.Waiting, fmt.Sprintf("slice %d is removed: %s of %s must end", place.Slice, page.Counted(int(n), "group"), place.Role))
		}
	}
	if w.Set.Status.ObservedGeneration < w.Set.Generation && !condition.IsTrue(w.Set.Status.Conditions, action.CodeUnsupported) {
		s.Waiting = append(s.Waiting, fmt.Sprintf("the operator has not observed generation %d", w.Set.Generation))
	}
	return s, nil
}

// withHindrances adds what only the operator knows: what the API server refused, which name is taken, and what keeps it from the set.
func withHindrances(set *dsv1.DisaggregatedSet, says []string) []string {
	for _, c := range set.Status.Conditions {
		isHindrance := c.Type == dsv1.ConditionProgressing && (c.Reason == action.CodeRefused || c.Reason == action.CodeNameConflict)
		isLeft := c.Type == action.CodeUnsupported && c.Status == metav1.ConditionTrue
		if (isHindrance || isLeft) && c.ObservedGeneration == set.Generation && !slices.Contains(says, c.Message) {
			says = append(says, c.Message)
		}
	}
	return says
}

// addSlice adds the rows of a slice, and counts their groups for their roles.
func (s *SetStatus) addSlice(t *disaggregated.Table, slice *disaggregated.Slice) {
	sum, parts := Pairs{Slice: slice.Index}, []Pairs(nil)
	for v, revision := range slice.Revisions {
		pairs, isAny := Pairs{slice.Index, revision.Name, 1}, false
		for r, role := range t.RoleNames(slice) {
			row, has := revision.Rows[role]
			if !has {
				continue
			}
			counts := Counts{Role: role, Slice: &slice.Index, Revision: revision.Name, Intended: row.Intended, Wanted: int32(len(row.Ready)), Holding: int32(len(row.Groups))}
			for _, isReady := range row.Ready {
				counts.Ready += map[bool]int32{true: 1}[isReady]
			}
			fenced := slices.DeleteFunc(slices.Clone(row.Groups), func(g disaggregated.Group) bool { return !g.IsReady || g.GetsTraffic })
			if disaggregated.HasPolicy(t.Set, dsv1.FencePartners) && len(fenced) > 0 {
				s.Waiting = append(s.Waiting, fmt.Sprintf("slice %d: %s of %s at %s out of traffic: a group of another role failed and is not ready", slice.Index, page.Counted(len(fenced), "group"), role, revision.Name))
			}
			if v == 0 {
				counts.Updated = min(counts.Wanted, counts.Holding)
			} else {
				s.old += counts.Wanted
			}
			if row.Intended > 0 {
				pairs.Complete, isAny = min(pairs.Complete, float64(counts.Ready)/float64(row.Intended)), true
			}
			if s.Rows = append(s.Rows, counts); r < len(s.Roles) {
				of := &s.Roles[r]
				of.Ready, of.Updated, of.Holding = of.Ready+counts.Ready, of.Updated+counts.Updated, of.Holding+counts.Holding
			}
		}
		if isAny {
			sum.Complete += pairs.Complete
			parts = append(parts, pairs)
		}
	}
	if sum.Complete = min(1, sum.Complete); len(parts) > 0 {
		s.Pairs = append(append(s.Pairs, sum), parts...)
	}
	for _, role := range slices.Sorted(maps.Keys(slice.Leaving)) {
		if n := slice.Leaving[role]; n > 0 {
			s.old += n
			s.Waiting = append(s.Waiting, fmt.Sprintf("slice %d: %s of %s must end", slice.Index, page.Counted(int(n), "group"), role))
		}
	}
}

// Write writes the roles, then the revisions of each slice, the pairs and what the set waits for.
func (s *SetStatus) Write(p *page.Page) {
	p.Linef("%s %s in namespace %s: revision %s%s", Noun, s.Name, s.Namespace, s.Revision, map[bool]string{true: ", rollout paused"}[s.Paused])
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
		roles = append(roles, page.Row{r.Role, r.Mode, r.Wanted, r.Ready, r.Updated, r.Holding})
	}
	for _, r := range s.Rows {
		rows = append(rows, page.Row{*r.Slice, r.Revision + map[bool]string{true: " (current)"}[r.Revision == s.Revision], r.Role, r.Wanted, r.Ready, r.Holding})
	}
	for _, part := range s.Pairs {
		text := fmt.Sprintf("slice %d: %.0f%% of the pairs are complete", part.Slice, 100*part.Complete)
		if part.Revision != "" {
			text = fmt.Sprintf("  %.0f%% at %s", 100*part.Complete, part.Revision)
		}
		pairs = append(pairs, text)
	}
	p.Table(page.Row{"ROLE", "MODE", "WANTED", "READY", "UPDATED", "HOLDING"}, roles)
	p.Table(page.Row{"SLICE", "REVISION", "ROLE", "WANTED", "READY", "HOLDING"}, rows)
	p.Section("pairs", pairs...)
	p.Section("waits for", s.Waiting...)
}
