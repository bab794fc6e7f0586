package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockstep.dev/lockstep/internal/cli/survey"
	"lockstep.dev/lockstep/internal/lws"
)

// failureOf returns the failures of a group from the set's status.
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

// failures lists the failed pods of each group, the latest first.
func (s *SetStatus) failures(out io.Writer, now time.Time) {
	var rows [][]string
	for _, g := range s.Groups {
		if g.Failed != nil {
			rows = append(rows, failureRows(g, now)...)
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

func failureRows(g GroupStatus, now time.Time) [][]string {
	index, times := strconv.Itoa(g.Index), number(int(g.Failed.Count))
	if len(g.Failed.Pods) == 0 {
		return [][]string{{index, "-", age(&g.Failed.At, now) + " ago", times, "-", "-"}}
	}
	var rows [][]string
	for _, f := range slices.Backward(g.Failed.Pods) {
		pod, why := f.Pod, f.Reason
		if f.Container != "" {
			pod += "/" + f.Container
		}
		if f.ExitCode != nil {
			why += fmt.Sprintf(" (exit code %d)", *f.ExitCode)
		}
		if message := strings.Join(strings.Fields(f.Message), " "); message != "" {
			why += ": " + message
		}
		rows = append(rows, []string{index, pod, age(&f.At, now) + " ago", times, dash(shortNode(f.Node)), why})
		index, times = "", "" // once for each group
	}
	return rows
}
