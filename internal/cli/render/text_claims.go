package render

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// WriteText writes a line for each PVC.
func (l *ClaimWhyList) WriteText(out io.Writer, now time.Time) error {
	var text strings.Builder
	if len(l.Items) > 0 {
		columns := []string{"PVC", "STATE", "SINCE", "DELETE", "HELD BY", "TO FREE IT"}
		if l.spaces {
			columns = append([]string{"NAMESPACE"}, columns...)
		}
		table := newTable(&text, columns...)
		for i := range l.Items {
			row(table, l.Items[i].cells(l.spaces, now)...)
		}
		table.Flush()
	}
	switch {
	case len(l.Items)+l.Free == 0:
		fmt.Fprintln(&text, "there are no PVCs")
	case len(l.Items) == 0:
		fmt.Fprintf(&text, "%s, none in use or being deleted\n", counted(l.Free, "PVC"))
	case l.Free > 0:
		fmt.Fprintf(&text, "\nand %s not in use\n", counted(l.Free, "PVC"))
	}
	if len(l.Items) > 0 {
		fmt.Fprint(&text, "\nfor details: kubectl lockstep why pvc/NAME\n")
	}
	return show(out, text.String())
}

func (c *ClaimWhy) cells(spaces bool, now time.Time) []string {
	deletion, next := "accepted", ""
	switch {
	case c.terminating():
		deletion, next = "under way", c.next()
	case c.Refused:
		deletion = "refused"
	}
	var keeping []string
	for _, h := range c.Holders {
		if h.Holds {
			keeping = append(keeping, h.Name)
		}
	}
	cells := []string{c.Name, string(c.State), ageOf(c.Since, now), deletion, firstOf(keeping), dash(next)}
	if spaces {
		cells = append([]string{c.Namespace}, cells...)
	}
	return cells
}

func (c *ClaimWhy) next() string {
	var steps []string
	for _, a := range c.Actions {
		steps = append(steps, a.Do)
	}
	if len(steps) == 0 && len(c.Unread) > 0 {
		return c.Unread[0].What + ": " + c.Unread[0].Why
	}
	return firstOf(steps)
}

// firstOf is the first of several for a table cell.
func firstOf(all []string) string {
	if len(all) < 2 {
		return dash(strings.Join(all, ""))
	}
	return fmt.Sprintf("%s and %d more", all[0], len(all)-1)
}
