package consequence

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockstep.dev/lockstep/internal/cli/page"
)

// Write writes the verdict, then the fields that change and what that does.
func (c *Consequence) Write(to *page.Page) {
	to.Linef("%s", c.Verdict)
	var fields, waits []string
	for _, change := range c.Changes {
		text := map[bool]string{true: "(changed)", false: valueText(change.From) + " → " + valueText(change.To)}[change.Hidden]
		fields = append(fields, change.Path+": "+text)
	}
	for _, w := range c.Waits {
		waits = append(waits, fmt.Sprintf("%s (%s)", w.Message, w.Reason))
	}
	to.Section("fields that change", fields...)
	to.Section("what it does", append(c.ofGroups(), c.ofRoom()...)...)
	to.Section("what may wait for ever", waits...)
}

// ofGroups says which groups are replaced, created or deleted, and what becomes of PVCs.
func (c *Consequence) ofGroups() (lines []string) {
	replaced := map[bool]string{true: "replaced, in this order", false: "replaced"}[c.Ordered]
	for _, did := range []struct {
		noun, text string
		of         Groups
	}{
		{"group", "deleted", c.Deleted}, {"group", "created", c.Created}, {"group", "created beyond replicas", c.Surge},
		{"group", replaced, c.Replaced}, {"group", "kept at another revision by the partition", c.Kept},
		{"PVC", "deleted, with their data", named(c.ClaimsDeleted)}, {"PVC", "that stay", named(c.ClaimsStay)},
		{"PVC", "used again", named(c.ClaimsReused)}, {"PVC", "created", named(c.ClaimsCreated)},
	} {
		if did.of.Count > 0 {
			lines = append(lines, fmt.Sprintf("%s %s: %s", page.Counted(did.of.Count, did.noun), did.text, did.of))
		}
	}
	if c.RevisionWas > 0 {
		lines = append(lines, fmt.Sprintf("revision %d is used again, as revision %d", c.RevisionWas, c.Revision))
	}
	return lines
}

// ofRoom says what is down, what is needed beside what is free, and how long it takes.
func (c *Consequence) ofRoom() (lines []string) {
	if c.Missing != "" {
		lines = append(lines, "free on nodes that fit: ? ("+c.Missing+")")
	}
	for _, is := range []struct {
		text   string
		amount *Amount
	}{{"down at most at once", c.Down}, {"at the peak", c.Peak}, {"more than now", c.More}, {"free on nodes that fit", c.Free}} {
		if is.amount != nil {
			lines = append(lines, is.text+": "+is.amount.String())
		}
	}
	if c.Steps > 0 {
		lines = append(lines, fmt.Sprintf("takes about %d × %d s, as its groups started last", c.Steps, c.StepSeconds))
	}
	return lines
}

// String names a few groups.
func (g Groups) String() string {
	if n := len(g.Names); n > page.NamedAtMost {
		return fmt.Sprintf("%s, %s, … %s", g.Names[0], g.Names[1], g.Names[n-1])
	}
	return cmp.Or(strings.Join(g.Names, ", "), "the Deployment controller chooses")
}

// String is an amount in words.
func (a *Amount) String() string {
	text := page.Counted(int(a.Pods), "pod")
	if a.Nodes > 0 {
		text += " on " + page.Counted(a.Nodes, "node")
	} else if a.Groups > 0 {
		text = page.Counted(a.Groups, "group") + ", " + text
	}
	for _, name := range slices.Sorted(maps.Keys(a.Accelerators)) {
		quantity := a.Accelerators[name]
		text += fmt.Sprintf(", %s %s", quantity.String(), name)
	}
	return text
}
