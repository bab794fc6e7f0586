package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clipvc "lockstep.dev/lockstep/internal/cli/pvc"
	"lockstep.dev/lockstep/internal/pvc"
)

// WriteText writes the state, what keeps the PVC, the next steps, and what becomes of the
// data.
func (c *ClaimWhy) WriteText(out io.Writer, now time.Time) error {
	var text strings.Builder
	c.head(&text, now)
	c.deletion(&text)
	c.finalizers(&text)
	c.holders(&text, now)
	c.unread(&text)
	suggestions(&text, "TO KEEP THE DATA, before anything else", c.Rescue)
	title := "IF IT IS TO GO: delete it, and then"
	if c.terminating() || c.Refused {
		title = "TO FREE IT"
	}
	suggestions(&text, title, c.Actions)
	suggestions(&text, "TO DELETE IT", c.Delete)
	fmt.Fprintf(&text, "\nONCE IT IS GONE\n  %s\n", strings.Join(c.Then, "\n  "))
	if c.Release != "" {
		fmt.Fprintf(&text, "\nTo let it be deleted while it is in use:\n      %s\n", c.Release)
	}
	fmt.Fprintf(&text, "\nread %s ago", age(&c.ReadAt, now))
	if c.VerifiedAt != nil {
		fmt.Fprintf(&text, "; operator last confirmed this %s ago", ageOf(c.VerifiedAt, now))
	}
	fmt.Fprintln(&text)
	return show(out, text.String())
}

func (c *ClaimWhy) head(out io.Writer, now time.Time) {
	fmt.Fprintf(out, "pvc/%s in namespace %s %s.\nstate %s", c.Name, c.Namespace, c.Summary, c.State)
	if c.Since != nil && c.State != pvc.Free && c.State != pvc.Unknown {
		fmt.Fprintf(out, " for %s", ageOf(c.Since, now))
	}
	if c.Until != nil {
		fmt.Fprintf(out, ", %s left", ageOf(&now, *c.Until))
	}
	fmt.Fprintf(out, "; mode %s (%s)", c.Mode, c.ModeFrom)
	if c.Volume != nil {
		fmt.Fprintf(out, "; volume %s", c.Volume)
	}
	fmt.Fprintln(out)
	for _, note := range c.Notes {
		fmt.Fprintf(out, "note: %s\n", note)
	}
}

func (v *Volume) String() string {
	switch v.Standing {
	case volumeGone:
		return v.Name + ", which does not exist"
	case volumeElsewhere:
		return v.Name + ", not bound to this PVC"
	}
	text := v.Name
	if v.Capacity != "" {
		text += ", " + v.Capacity
	}
	return text + ", reclaim policy " + cmp.Or(v.ReclaimPolicy, "unknown")
}

// deletion is the answer to a dry-run DELETE.
func (c *ClaimWhy) deletion(out io.Writer) {
	d := c.Deletion
	if d == nil {
		return
	}
	answer := map[string]string{
		clipvc.Accepted: "accepted: " + c.afterwards(), clipvc.Refused: "refused by " + d.RefusedBy + ": " + d.Message,
		clipvc.NotAllowed: "you may not delete it: " + d.Message, clipvc.NotTried: "unknown: " + d.Message,
	}[d.Outcome]
	fmt.Fprintf(out, "\nIF DELETED NOW (a dry run: nothing was deleted)\n  %s\n", answer)
	for _, warning := range d.Warnings {
		fmt.Fprintf(out, "  warning: %s\n", warning)
	}
}

// afterwards is what becomes of a PVC whose DELETE is accepted.
func (c *ClaimWhy) afterwards() string {
	podsUnread := slices.ContainsFunc(c.Unread, func(u pvc.Unread) bool { return u.What == pvc.UnreadPods })
	switch keeping := c.keepingDeleted(); {
	case c.terminating():
		return "it is being deleted already"
	case len(keeping) > 0:
		return "it stays until these are gone: " + few(keeping) + "; this cannot be undone"
	case podsUnread:
		return "pods could not be read, and may keep it"
	}
	return "it is removed at once; this cannot be undone"
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

func (c *ClaimWhy) finalizers(out io.Writer) {
	if len(c.Finalizers) == 0 {
		return
	}
	fmt.Fprintln(out)
	table := newTable(out, "FINALIZER", "OWNER", "REMOVED WHEN")
	for _, f := range c.Finalizers {
		row(table, f.Key, f.Owner, f.Drops)
	}
	table.Flush()
}

// holders lists each holder with its proof.
func (c *ClaimWhy) holders(out io.Writer, now time.Time) {
	if len(c.Holders) > 0 {
		fmt.Fprint(out, "\nUSED BY\n")
	}
	for _, h := range c.Holders {
		holds := "does not hold"
		if h.Holds {
			holds = "holds"
		}
		if h.Since != nil {
			holds += " (" + ageOf(h.Since, now) + ")"
		}
		fmt.Fprintf(out, "  %s: %s; %s\n      proof: %s", h.Name, holds, h.Why, h.Proof)
		if h.UID != "" {
			fmt.Fprintf(out, ", uid %s", h.UID)
		}
		fmt.Fprintln(out)
	}
	for _, h := range c.Idle {
		fmt.Fprintf(out, "\n%s does not use it now: %s (%s)\n", h.Name, h.Phase, h.Proof)
	}
}

func (c *ClaimWhy) unread(out io.Writer) {
	if len(c.Unread) == 0 {
		return
	}
	fmt.Fprint(out, "\nNOT READ\n")
	for _, u := range c.Unread {
		mayHold := ""
		if u.MayHold {
			mayHold = "; it may hold the PVC"
		}
		fmt.Fprintf(out, "  %s: %s%s\n", u.What, u.Why, mayHold)
	}
}

func suggestions(out io.Writer, title string, all []pvc.Suggestion) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s\n", title)
	for i, s := range all {
		mark := "  "
		if len(all) > 1 {
			mark += strconv.Itoa(i+1) + ". "
		}
		fmt.Fprint(out, mark+s.Do)
		if len(s.Frees) > 1 {
			fmt.Fprintf(out, " (frees %s)", few(s.Frees))
		}
		fmt.Fprintln(out)
		if s.Command != "" {
			fmt.Fprintf(out, "      %s\n", s.Command)
		}
	}
}

func ageOf(at *time.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	return age(&metav1.Time{Time: *at}, now)
}
