// Package fleet shows many sets: one line for each, the worst first.
//
// It knows how far a set is, which accelerators it holds, and which state is worse. It refuses to know what a set is made
// of: each kind of set fills its lines where it is read.
package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"lockstep.dev/lockstep/internal/cli/page"
)

// State is the state of a set in a word. It is stable.
type State string

// The states of a set.
const (
	Stalled    State = "Stalled"    // it waits for what only a person can change
	Unattended State = "Unattended" // no operator has observed its spec
	Degraded   State = "Degraded"   // a group exhausted its restarts and was stopped
	BackingOff State = "BackingOff" // a failed group is recreated later
	Waiting    State = "Waiting"    // for what no operator can do, such as a node or an image
	Restarting State = "Restarting" // a failed group is being recreated
	Unready    State = "Unready"    // a group started, and now has a pod that is not ready
	Starting   State = "Starting"   // groups have not started yet
	Updating   State = "Updating"   // a rollout replaces groups
	Paused     State = "Paused"     // its rollout is paused
	Deleting   State = "Deleting"   // it is being deleted
	Ready      State = "Ready"      // all groups are ready, and no rollout runs
)

// States are all states, the worst first.
var States = []State{Stalled, Unattended, Degraded, BackingOff, Waiting, Restarting, Unready, Starting, Updating, Paused, Deleting, Ready}

// Line is one set of any kind.
type Line struct {
	APIGroup  string      `json:"apiGroup"`
	Kind      string      `json:"kind"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	UID       types.UID   `json:"uid"`
	CreatedAt metav1.Time `json:"createdAt"`
	// DeletedAt is when the set was deleted; absent before.
	DeletedAt *metav1.Time `json:"deletedAt,omitempty"`
	// Reason is a stable code for the state, and Message a sentence for people.
	State   State  `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Groups  Count  `json:"groups"`
	Pods    Count  `json:"pods"`
	// Accelerators are the extended resources of pods that have a node and have not ended. Nodes counts these nodes.
	Accelerators Accelerators `json:"accelerators,omitempty"`
	Nodes        int          `json:"nodes"`
	// Revision is the key of the target revision; absent while unknown.
	Revision string `json:"revision,omitempty"`
	// Prefix is what commands take before the name, where a name alone means another kind.
	Prefix string `json:"-"`
	// On are the nodes.
	On sets.Set[string] `json:"-"`
}

// Add counts a part of the set. The set is in the state of its worst part that stays.
func (l *Line) Add(part Line) {
	l.Groups, l.Pods = l.Groups.and(part.Groups), l.Pods.and(part.Pods)
	l.Accelerators = l.Accelerators.With(part.Accelerators...)
	l.On = l.On.Union(part.On)
	if l.Nodes = len(l.On); part.DeletedAt == nil {
		l.Worsen(part.State, part.Reason, part.Message)
	}
}

// Worsen sets a state that is worse than the one of the set.
func (l *Line) Worsen(state State, reason, message string) {
	if slices.Index(States, state) < slices.Index(States, l.State) {
		l.State, l.Reason, l.Message = state, reason, message
	}
}

// Count is how many groups or pods there are. Those that are ready or updated may be more than are wanted.
type Count struct {
	Wanted   int64 `json:"wanted"`
	Existing int64 `json:"existing"`
	Ready    int64 `json:"ready"`
	Updated  int64 `json:"updated"`
}

func (c Count) and(more Count) Count {
	return Count{c.Wanted + more.Wanted, c.Existing + more.Existing, c.Ready + more.Ready, c.Updated + more.Updated}
}

// Accelerators are ordered by the names of their resources.
type Accelerators []Accelerator

// Accelerator is how much of a resource is held, and how much of that is idle: by pods outside of ready groups.
type Accelerator struct {
	Resource string `json:"resource"`
	Held     int64  `json:"held"`
	Idle     int64  `json:"idle"`
}

// With returns the accelerators and more of them.
func (a Accelerators) With(more ...Accelerator) Accelerators {
	for _, one := range more {
		i, isKnown := slices.BinarySearchFunc(a, one, func(a, b Accelerator) int { return cmp.Compare(a.Resource, b.Resource) })
		if !isKnown {
			a = slices.Insert(a, i, Accelerator{Resource: one.Resource})
		}
		a[i].Held += one.Held
		a[i].Idle += one.Idle
	}
	return a
}

func (a Accelerators) text(held string) string {
	var parts []string
	for _, one := range a {
		parts = append(parts, fmt.Sprintf("%d %s%s, %d idle", one.Held, one.Resource, held, one.Idle))
	}
	return strings.Join(parts, "; ")
}

// compare orders lines: the worst state first, then the most idle accelerators.
func compare(a, b Line) int {
	idle := func(l Line) (sum int64) {
		for _, one := range l.Accelerators {
			sum += one.Idle
		}
		return sum
	}
	return cmp.Or(slices.Index(States, a.State)-slices.Index(States, b.State), cmp.Compare(idle(b), idle(a)),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Formats are those of a fleet beside a table and the formats for programs.
var Formats = []string{"wide", "name"}

// Question is which sets are shown, and how.
type Question struct {
	Namespace, Format    string
	Everywhere, NotReady bool
	Labels               string
}

// AddFlags adds flags for all but the namespace and the format.
func (q *Question) AddFlags(to *pflag.FlagSet) {
	to.BoolVarP(&q.Everywhere, "all-namespaces", "A", false, "show the sets of all namespaces")
	to.StringVarP(&q.Labels, "selector", "l", "", "show only sets with these `labels`, such as team=a,tier!=test")
	to.BoolVar(&q.NotReady, "not-ready", false, "show only sets that are not ready")
}

// Selector returns the selector of sets. A question that names one set has none.
func (q *Question) Selector(isNamed bool) (labels.Selector, error) {
	if isNamed && (q.Everywhere || q.NotReady || q.Labels != "" || slices.Contains(Formats, q.Format)) {
		return nil, fmt.Errorf("-A, -l, --not-ready and -o %s are about all sets: leave them out, or the name", strings.Join(Formats, "|"))
	}
	selector, err := labels.Parse(q.Labels)
	if err != nil {
		err = fmt.Errorf("--selector %q: %w; give labels such as team=a,tier!=test", q.Labels, err)
	}
	return selector, err
}

// Status is what "status -o json" prints without a name.
type Status struct {
	metav1.TypeMeta `json:",inline"`
	// Unattended says why no operator acts on any set; absent while one does, or where you may not see it.
	Unattended string `json:"unattended,omitempty"`
	// Unread says which sets are not shown, and why.
	Unread []string `json:"unread,omitempty"`
	// Items are the sets, the worst first. The total includes those that are left out because they are ready.
	Items []Line `json:"items"`
	Total struct {
		Sets         int          `json:"sets"`
		NotReady     int          `json:"notReady"`
		Accelerators Accelerators `json:"accelerators,omitempty"`
	} `json:"total"`

	asked Question
}

// Of returns the answer to a question. The lines may have any order.
func Of(asked Question, lines []Line, unattended string) *Status {
	s := &Status{TypeMeta: page.Kind("FleetStatus"), Unattended: unattended, Items: []Line{}, asked: asked}
	s.Total.Sets = len(lines)
	for _, l := range lines {
		s.Total.Accelerators = s.Total.Accelerators.With(l.Accelerators...)
		if l.State != Ready {
			s.Total.NotReady++
		}
		if l.State != Ready || !asked.NotReady {
			s.Items = append(s.Items, l)
		}
	}
	slices.SortFunc(s.Items, compare)
	return s
}

// Write writes a table and the total below, or the names as kubectl does.
func (s *Status) Write(p *page.Page) {
	if s.asked.Format == "name" {
		for _, l := range s.Items {
			p.Linef("%s.%s/%s", strings.ToLower(l.Kind), l.APIGroup, l.Name)
		}
		return
	}
	for _, said := range s.Unread {
		p.Linef("%s", said)
	}
	switch {
	case s.Total.Sets == 0:
		p.Linef("%s", s.asked.nothing())
		return
	case s.Unattended != "":
		p.Linef("%s", s.Unattended)
	}
	var rows []page.Row
	for _, l := range s.Items {
		rows = append(rows, s.asked.row(page.Row{
			l.Prefix + l.Name, page.Cell{Text: l.State, Tone: l.tone()}, l.share(l.Groups), l.Groups.Updated, l.share(l.Pods), l.Accelerators.text(""), p.Age(&l.CreatedAt), l.Message,
		}, l.Namespace, l.Pods.Existing, l.Nodes, l.Revision))
	}
	titles := page.Row{"NAME", "STATE", "GROUPS", "UPDATED", "PODS", "ACCELERATORS", "AGE", "REASON"}
	p.Table(s.asked.row(titles, "NAMESPACE", "EXISTING", "NODES", "REVISION"), rows)
	p.Gap()
	total := fmt.Sprintf("%s, %d not ready; %s", page.Counted(s.Total.Sets, "set"), s.Total.NotReady, s.Total.Accelerators.text(" held"))
	p.Linef("%s", strings.TrimSuffix(total, "; "))
}

// row adds the cells that only a wide table has, after the pods, and those that only a table of all namespaces has.
func (q *Question) row(row page.Row, namespace any, wide ...any) page.Row {
	if q.Format == "wide" {
		row = slices.Insert(row, 5, wide...)
	}
	if q.Everywhere {
		row = slices.Insert(row, 0, namespace)
	}
	return row
}

func (l *Line) tone() page.Tone {
	switch l.State {
	case Ready:
		return page.Good
	case Stalled, Unattended, Degraded:
		return page.Bad
	}
	return page.Caution
}

// share is how many are ready of those that are wanted.
func (l *Line) share(c Count) page.Cell {
	cell := page.Cell{Text: fmt.Sprintf("%d/%d", c.Ready, c.Wanted)}
	if c.Ready < c.Wanted {
		cell.Tone = l.tone()
	}
	return cell
}

// nothing says that no set was found, and where else to look.
func (q *Question) nothing() string {
	text := strings.TrimSuffix("no LeaderWorkerSets or DisaggregatedSets with labels "+q.Labels, " with labels ")
	if q.Everywhere {
		return text + " in any namespace"
	}
	return fmt.Sprintf("%s in namespace %s; look everywhere with -A", text, q.Namespace)
}
