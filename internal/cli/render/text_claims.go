package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	"lockstep.dev/lockstep/internal/pvc"
)

// WriteText writes a line for each claim.
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
		fmt.Fprintln(&text, "there are no claims")
	case len(l.Items) == 0:
		fmt.Fprintf(&text, "%s looked at: none is in use, none is being deleted\n", counted(l.Free, "claim"))
	case l.Free > 0:
		fmt.Fprintf(&text, "\nand %s that nobody uses\n", counted(l.Free, "claim"))
	}
	if len(l.Items) > 0 {
		fmt.Fprint(&text, "\nsee one in full with: kubectl lockstep why pvc/NAME\n")
	}
	return show(out, text.String())
}

func (c *ClaimWhy) cells(spaces bool, now time.Time) []string {
	deletion := "accepted"
	switch {
	case c.AskedBy != "":
		deletion = "under way"
	case c.Refused:
		deletion = "refused"
	}
	keeping := c.keeping()
	cells := []string{c.Name, string(c.State), ageOf(c.Since, now), deletion, dash(firstOf(keeping, ", ")), dash(c.next())}
	if spaces {
		cells = append([]string{c.Namespace}, cells...)
	}
	return cells
}

// next is what stands between a claim that is to go and its end.
func (c *ClaimWhy) next() string {
	if c.AskedBy == "" {
		return ""
	}
	var deeds []string
	for _, a := range c.Actions {
		deeds = append(deeds, a.Do)
	}
	if len(deeds) == 0 && len(c.Unread) > 0 {
		return "cannot tell: " + c.Unread[0].What + ": " + c.Unread[0].Why
	}
	return firstOf(deeds, "; ")
}

// firstOf is what a table has room for.
func firstOf(all []string, between string) string {
	const room = 2
	text := strings.Join(all[:min(len(all), room)], between)
	if more := len(all) - room; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// keepingDeleted are those that keep the claim once it is deleted: words keep nothing
// then.
func (c *ClaimWhy) keepingDeleted() []string {
	var names []string
	for _, h := range c.Holders {
		if h.Holds && h.Reason != pvc.DesiredState && h.Reason != pvc.Asked && h.Reason != pvc.Stated {
			names = append(names, h.Name)
		}
	}
	for _, key := range c.Foreign() {
		names = append(names, "the owner of finalizer "+key)
	}
	return names
}

// letGo joins names and the verb.
func letGo(names []string) string {
	if len(names) == 1 {
		return names[0] + " lets go"
	}
	return few(names, len(names)) + " let go"
}

// keeping are those that truly hold the claim.
func (c *ClaimWhy) keeping() []string {
	var names []string
	for _, h := range c.Holders {
		if h.Holds {
			names = append(names, h.Name)
		}
	}
	return names
}
