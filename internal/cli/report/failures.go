package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"lockstep.dev/lockstep/internal/cli/survey"
	"lockstep.dev/lockstep/internal/lws"
)

// failureOf is what the set's status tells of a group's failures.
func failureOf(g survey.Group) *GroupFailure {
	r := lws.RestartsOf(g.Set, g.Index)
	if r == nil {
		return nil
	}
	f := &GroupFailure{Count: r.Count, At: r.FailedAt, Pods: r.Failures}
	if g.Leader != nil && g.Leader.UID == r.Leader {
		f.Due = &r.DueAt
	}
	return f
}

// failures lists the pods for whose sake groups were recreated, the latest of each
// group first.
func (s *SetStatus) failures(out io.Writer, now time.Time) {
	var rows [][]string
	for _, g := range s.Groups {
		if g.Failed == nil {
			continue
		}
		if len(g.Failed.Pods) == 0 {
			rows = append(rows, []string{strconv.Itoa(g.Index), "-", age(&g.Failed.At, now) + " ago", inARow(g.Failed), "-", "-"})
		}
		for i := len(g.Failed.Pods) - 1; i >= 0; i-- {
			f := g.Failed.Pods[i]
			pod, what, group, times := f.Pod, f.Reason, "", ""
			if f.Container != "" {
				pod += "/" + f.Container
			}
			if f.ExitCode != nil {
				what += fmt.Sprintf(" (exit code %d)", *f.ExitCode)
			}
			if i == len(g.Failed.Pods)-1 {
				group, times = strconv.Itoa(g.Index), inARow(g.Failed)
			}
			said := strings.Join(strings.Fields(f.Message), " ")
			rows = append(rows, []string{group, pod, age(&f.At, now) + " ago", times, dash(shortNode(f.Node)), what + told(said)})
		}
	}
	if len(rows) == 0 {
		return
	}
	fmt.Fprintln(out)
	table := newTable(out, "GROUP", "FAILED POD", "WHEN", "IN A ROW", "NODE", "WHY")
	for _, cells := range rows {
		row(table, cells...)
	}
	table.Flush()
}

// inARow is nothing where pods were deleted only: that is not held against a group.
func inARow(f *GroupFailure) string {
	if f.Count == 0 {
		return "-"
	}
	return strconv.Itoa(int(f.Count))
}

func told(said string) string {
	if said == "" {
		return ""
	}
	return ": " + said
}
