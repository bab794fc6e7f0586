package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	"lockstep.dev/lockstep/internal/pvc"
)

// WriteText writes a line for each PVC.
func (l *ClaimWhyList) WriteText(out io.Writer, now time.Time) error {
	var text strings.Builder
	if len(l.Items) > 0 {
		columns := []string{"CLAIM", "STATE", "SINCE", "DELETE", "HELD BY", "TO FREE IT"}
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
	cells := []string{c.Name, string(c.State), ageOf(c.Since, now), deletion, dash(firstOf(keeping, ", ")), dash(next)}
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
	return firstOf(steps, "; ")
}

// firstOf is what a table cell has room for.
func firstOf(all []string, between string) string {
	const room = 2
	text := strings.Join(all[:min(len(all), room)], between)
	if more := len(all) - room; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// keepingDeleted are the holders and finalizers that keep the PVC once it is deleted.
func (c *ClaimWhy) keepingDeleted() (names []string) {
	for _, h := range c.Holders {
		if h.Holds && (h.Reason == pvc.BoundPod || h.Reason == pvc.UnboundPod || h.Reason == pvc.BeingCopied) {
			names = append(names, h.Name)
		}
	}
	for _, key := range c.Foreign() {
		names = append(names, "finalizer "+key)
	}
	return names
}

func ended(names []string) string {
	if len(names) == 1 {
		return names[0] + " is gone"
	}
	return few(names, len(names)) + " are gone"
}
