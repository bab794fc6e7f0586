package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// ghostsAtMost bounds how many ghosts a text lists one by one.
const ghostsAtMost = 10

// WriteText writes the status as tables. Ages are those at now.
func (s *SetStatus) WriteText(out io.Writer, now time.Time) error {
	var text strings.Builder
	s.header(&text, now)
	s.conditions(&text, now)
	s.waits(&text)
	s.groups(&text, now)
	s.failures(&text, now)
	s.ghosts(&text, now)
	return show(out, text.String())
}

func (s *SetStatus) header(out io.Writer, now time.Time) {
	fmt.Fprintf(out, "%s in namespace %s: %d of %d groups ready, %d up to date, %s each\n",
		s.Name, s.Namespace, s.Ready, s.Desired, s.UpToDate, counted(int(s.Size), "pod"))
	fmt.Fprintf(out, "revision %s, set created %s ago", dash(s.Revision), age(&s.CreatedAt, now))
	if s.Paused {
		fmt.Fprint(out, ", rollout paused")
	}
	if s.DeletedAt != nil {
		fmt.Fprintf(out, ", deleted %s ago: what it made goes with it", age(s.DeletedAt, now))
	}
	fmt.Fprintln(out)
	if s.Due > 0 {
		fmt.Fprintf(out, "the operator has %s yet to make; see: kubectl lockstep plan %s -n %s\n", counted(s.Due, "write"), s.Name, s.Namespace)
	}
}

func (s *SetStatus) conditions(out io.Writer, now time.Time) {
	if len(s.Conditions) == 0 {
		fmt.Fprintln(out, "\nno conditions yet: no operator has seen this set")
		return
	}
	fmt.Fprintln(out)
	table := newTable(out, "CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE")
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionUnknown, metav1.ConditionFalse} {
		for _, c := range s.Conditions {
			if c.Status == status {
				row(table, c.Type, string(c.Status), age(&c.LastTransitionTime, now), c.Reason, message(c))
			}
		}
	}
	table.Flush()
}

// message leaves out the message of a false condition: the API keeps the one of when it was true.
func message(c metav1.Condition) string {
	if c.Status == metav1.ConditionFalse {
		return "-"
	}
	return c.Message
}

// waits lists the waits that no condition shows.
func (s *SetStatus) waits(out io.Writer) {
	var lines []string
	for _, w := range s.Waiting {
		told := slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool {
			return c.Status == metav1.ConditionTrue && c.Message == w.Message
		})
		if !told {
			lines = append(lines, fmt.Sprintf("waiting: %s (%s)", inLine(w.Message), w.Reason))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(out, "\n%s\n", strings.Join(lines, "\n"))
	}
}

func (s *SetStatus) groups(out io.Writer, now time.Time) {
	fmt.Fprintln(out)
	if len(s.Groups) == 0 {
		fmt.Fprintln(out, "no groups are wanted and none exist")
		return
	}
	table := newTable(out, "GROUP", "READY", "REVISION", "NODES", "AGE", "RESTARTS", "GHOSTS", "WAITING FOR")
	for rows := s.Groups; len(rows) > 0; {
		n := alike(rows)
		row(table, s.cells(rows[:n], now)...)
		rows = rows[n:]
	}
	if s.GroupsOmitted > 0 {
		row(table, fmt.Sprintf("and %d more, of which nothing exists", s.GroupsOmitted))
	}
	table.Flush()
}

// alike returns how many groups share a row: at least three in sequence without objects, with the
// same reasons.
func alike(rows []GroupStatus) int {
	n := 1
	for n < len(rows) && missing(rows[0]) && missing(rows[n]) && rows[n].Index == rows[0].Index+n && sameReasons(rows[n], rows[0]) {
		n++
	}
	if n < 3 {
		return 1
	}
	return n
}

func missing(g GroupStatus) bool { return !g.Exists && len(g.Ghosts) == 0 }

func sameReasons(a, b GroupStatus) bool {
	return slices.EqualFunc(a.Waiting, b.Waiting, func(x, y Wait) bool { return x.Reason == y.Reason })
}

func (s *SetStatus) cells(same []GroupStatus, now time.Time) []string {
	g := same[0]
	index, waiting := strconv.Itoa(g.Index), messages(g.Waiting)
	if len(same) > 1 {
		index = fmt.Sprintf("%d-%d", g.Index, same[len(same)-1].Index)
		waiting += fmt.Sprintf("; likewise the other %d", len(same)-1)
	}
	if !g.Wanted {
		index += " (surplus)"
	}
	revision := dash(g.Revision)
	if g.Exists && !g.UpToDate && g.Revision != s.Revision {
		revision += " (old)"
	}
	return []string{
		index, fmt.Sprintf("%d/%d", g.ReadyPods, g.Pods), revision, nodes(g.Nodes), age(g.CreatedAt, now),
		strconv.Itoa(int(g.Restarts)), number(len(g.Ghosts)), waiting,
	}
}

func messages(all []Wait) string {
	var text []string
	for _, w := range all {
		text = append(text, w.Message)
	}
	return dash(strings.Join(text, "; "))
}

// ghosts lists objects of previous incarnations, which no count includes.
func (s *SetStatus) ghosts(out io.Writer, now time.Time) {
	all := slices.Clone(s.Ghosts)
	for _, g := range s.Groups {
		all = append(all, g.Ghosts...)
	}
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(out)
	table := newTable(out, "GHOST (NOT COUNTED)", "DELETED", "NODE", "HELD BY")
	for _, g := range all[:min(len(all), ghostsAtMost)] {
		row(table, strings.ToLower(g.Kind)+" "+g.Name, deleted(g, now), dash(shortNode(g.Node)), dash(strings.Join(g.Finalizers, ",")))
	}
	table.Flush()
	if more := len(all) - ghostsAtMost; more > 0 {
		fmt.Fprintf(out, "and %d more\n", more)
	}
}

func deleted(g Ghost, now time.Time) string {
	if g.DeletedAt == nil {
		return "not yet"
	}
	return age(g.DeletedAt, now) + " ago"
}

func newTable(out io.Writer, columns ...string) *tabwriter.Writer {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row(table, columns...)
	return table
}

func row(table io.Writer, cells ...string) {
	for i := range cells {
		cells[i] = inLine(cells[i])
	}
	fmt.Fprintln(table, strings.Join(cells, "\t"))
}

// age formats a duration as kubectl does.
func age(at *metav1.Time, now time.Time) string {
	if at == nil || at.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(now.Sub(at.Time), 0))
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
