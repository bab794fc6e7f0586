package render

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

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// previousAtMost bounds how many objects of previous incarnations a text lists one by one.
const previousAtMost = 10

// WriteText writes the status as tables. Ages are those at now.
func (s *SetStatus) WriteText(out io.Writer, now time.Time) error {
	var text strings.Builder
	s.header(&text, now)
	s.conditions(&text, now)
	s.waits(&text)
	s.groups(&text, now)
	s.failures(&text, now)
	s.previous(&text, now)
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
		fmt.Fprintf(out, ", being deleted for %s", age(s.DeletedAt, now))
	}
	fmt.Fprintln(out)
	if s.Due > 0 {
		fmt.Fprintf(out, "the operator has %s yet to make; see: kubectl lockstep plan %s -n %s\n", counted(s.Due, "write"), s.Name, s.Namespace)
	}
}

func (s *SetStatus) conditions(out io.Writer, now time.Time) {
	if len(s.Conditions) == 0 {
		fmt.Fprintln(out, "\nno conditions yet: no operator has reconciled this set")
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
		shown := slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool {
			return c.Status == metav1.ConditionTrue && c.Message == w.Message
		})
		if !shown {
			lines = append(lines, fmt.Sprintf("waiting: %s (%s)", inLine(w.Message), w.Reason))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(out, "\n%s\n", strings.Join(lines, "\n"))
	}
}

func (s *SetStatus) groups(out io.Writer, now time.Time) {
	if len(s.Groups) == 0 {
		return
	}
	fmt.Fprintln(out)
	table := newTable(out, "GROUP", "READY", "REVISION", "NODES", "AGE", "RESTARTS", "WAITING FOR")
	for i := 0; i < len(s.Groups); i++ {
		g := s.Groups[i]
		index, revision := strconv.Itoa(g.Index), dash(g.Revision)
		for g.blank() && i+1 < len(s.Groups) && s.Groups[i+1].blank() {
			i++
			index = fmt.Sprintf("%d-%d", g.Index, s.Groups[i].Index)
		}
		if !g.Wanted {
			index += " (surplus)"
		}
		if g.Exists && !g.UpToDate && g.Revision != s.Revision {
			revision += " (old)"
		}
		row(table, index, fmt.Sprintf("%d/%d", g.ReadyPods, g.Pods), revision, nodes(g.Nodes), age(g.CreatedAt, now),
			strconv.Itoa(int(g.Restarts)), messages(g.Waiting))
	}
	if s.GroupsOmitted > 0 {
		row(table, fmt.Sprintf("and %d more", s.GroupsOmitted))
	}
	table.Flush()
}

// blank reports whether a group has no object. Such groups in a row share one row.
func (g GroupStatus) blank() bool { return !g.Exists && len(g.Previous) == 0 }

func messages(all []Wait) string {
	var text []string
	for _, w := range all {
		text = append(text, w.Message)
	}
	return dash(strings.Join(text, "; "))
}

// failures lists the failed pods of each group, the latest first.
func (s *SetStatus) failures(out io.Writer, now time.Time) {
	table := newTable(out, "GROUP", "FAILED POD", "WHEN", "IN A ROW", "NODE", "WHY")
	failed := false
	for _, g := range s.Groups {
		if g.Failed == nil {
			continue
		}
		failed = true
		for _, f := range slices.Backward(g.Failed.Pods) {
			row(table, strconv.Itoa(g.Index), f.Pod, age(&f.At, now)+" ago", strconv.Itoa(int(g.Failed.Count)), dash(shortNode(f.Node)), reasonOf(f))
		}
		if len(g.Failed.Pods) == 0 {
			row(table, strconv.Itoa(g.Index), "-", age(&g.Failed.At, now)+" ago", strconv.Itoa(int(g.Failed.Count)), "-", "-")
		}
	}
	if failed {
		fmt.Fprintln(out)
		table.Flush()
	}
}

func reasonOf(f lwsv1.PodFailure) string {
	reason := f.Reason
	if f.ExitCode != nil {
		reason += fmt.Sprintf(" (exit code %d)", *f.ExitCode)
	}
	if f.Container != "" {
		reason = f.Container + ": " + reason
	}
	if f.Message != "" {
		reason += ": " + inLine(f.Message)
	}
	return reason
}

// previous lists objects of previous incarnations, which no count includes.
func (s *SetStatus) previous(out io.Writer, now time.Time) {
	all := slices.Clone(s.Previous)
	for _, g := range s.Groups {
		all = append(all, g.Previous...)
	}
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(out)
	table := newTable(out, "PREVIOUS (NOT COUNTED)", "DELETED", "NODE", "FINALIZERS")
	for _, p := range all[:min(len(all), previousAtMost)] {
		row(table, strings.ToLower(p.Kind)+" "+p.Name, age(p.DeletedAt, now), dash(shortNode(p.Node)), dash(strings.Join(p.Finalizers, ",")))
	}
	table.Flush()
	if more := len(all) - previousAtMost; more > 0 {
		fmt.Fprintf(out, "and %d more\n", more)
	}
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
