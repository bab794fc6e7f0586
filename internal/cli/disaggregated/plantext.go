package disaggregated

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockstep.dev/lockstep/internal/cli/consequence"
	"lockstep.dev/lockstep/internal/cli/page"
)

// Write writes the steps of each slice, the peaks, the objects and the waits. A file that changes nothing has no text.
func (p *Plan) Write(to *page.Page) {
	if p.NoChange {
		return
	}
	to.Gap()
	state := strings.TrimSuffix(fmt.Sprintf(", if %s were applied now", p.File), ", if  were applied now")
	if p.UID == "" {
		state += " (no such set yet)"
	}
	to.Linef("%s %s in namespace %s%s: revision %s", noun, p.Name, p.Namespace, state, p.Revision)
	for _, warning := range p.Warnings {
		to.Linef("warning: %s", warning)
	}
	if p.isEmpty() {
		to.Linef("in step: nothing to do")
	}
	for i, next := 0, 0; i < len(p.Slices); i = next {
		for next = i + 1; next < len(p.Slices) && p.Slices[next].Index == p.Slices[next-1].Index+1 && p.Slices[i].equals(p.Slices[next]); {
			next++
		}
		p.Slices[i].write(to, p.Slices[next-1].Index)
	}
	if p.Peak != nil {
		var peaks []page.Row
		for _, r := range append(slices.Clone(p.Roles), RolePeak{"all", p.Peak}) {
			peaks = append(peaks, page.Row{r.Role, r.Groups, r.Pods, acceleratorsOf(r.Amount)})
		}
		to.Gap()
		to.Linef("at the peak, whatever becomes ready when")
		to.Table(page.Row{"ROLE", "GROUPS", "PODS", "ACCELERATORS"}, peaks)
	}
	to.Section("created", p.Created...)
	to.Section("deleted", p.Deleted...)
	to.Section("waits", p.Waits...)
}

func acceleratorsOf(a *consequence.Amount) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(a.Accelerators)) {
		quantity := a.Accelerators[name]
		all = append(all, quantity.String()+" "+string(name))
	}
	return strings.Join(all, ", ")
}

// write writes the steps of slices up to last, which take the same.
func (s SlicePlan) write(to *page.Page, last int) {
	name := fmt.Sprintf("slice %d", s.Index)
	if last > s.Index {
		name = fmt.Sprintf("slices %d-%d, each", s.Index, last)
	}
	to.Gap()
	if len(s.Stuck) > 0 {
		to.Linef("%s: the rollout cannot begin for %s", name, page.Few(s.Stuck))
	}
	to.Linef("%s: groups of %s after each step", name, strings.Join(s.Roles, "/"))
	vector := func(counts []int32) string {
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(counts), "[]"), " ", "/")
	}
	columns, rows := page.Row{"STEP"}, []page.Row{}
	for v, revision := range s.Revisions {
		columns = append(columns, map[bool]string{true: "NEW ", false: "OLD "}[v == 0]+revision)
	}
	for i, counts := range s.Steps {
		row := page.Row{i}
		for _, of := range counts {
			row = append(row, vector(of))
		}
		rows = append(rows, row)
	}
	to.Table(columns, rows)
	to.Linef("ready at least %s, with nodes at most %s", vector(s.Floors), vector(s.Ceilings))
}
