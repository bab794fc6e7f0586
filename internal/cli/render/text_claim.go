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

	"lockstep.dev/lockstep/internal/cli/inquiry"
	"lockstep.dev/lockstep/internal/pvc"
)

// WriteText writes the explanation for people: first what is so and since when, then
// what keeps it and who, then what to do, and last what comes of that.
func (c *ClaimWhy) WriteText(out io.Writer, now time.Time) error {
	var text strings.Builder
	c.head(&text, now)
	c.deletion(&text)
	c.finalizers(&text)
	c.holders(&text, now)
	c.idle(&text)
	c.blockers(&text)
	c.unread(&text)
	suggestions(&text, "TO KEEP THE DATA, before anything else", c.Rescue)
	suggestions(&text, c.todo(), c.Actions)
	suggestions(&text, "TO DELETE IT", c.Delete)
	c.then(&text)
	c.foot(&text, now)
	return show(out, text.String())
}

func (c *ClaimWhy) head(out io.Writer, now time.Time) {
	fmt.Fprintf(out, "pvc/%s in namespace %s %s.\n", c.Name, c.Namespace, c.Summary)
	if c.AskedBy != "" {
		fmt.Fprintf(out, "Its deletion was asked for %s ago. Who asked is %s: the object does not say; the API server's audit log would.\n",
			ageOf(c.Since, now), c.AskedBy)
	}
	fmt.Fprintf(out, "state %s%s; mode %s (%s)", c.State, c.lasts(now), c.Mode, c.ModeFrom)
	if c.Volume != nil {
		fmt.Fprintf(out, "; volume %s", c.Volume)
	}
	fmt.Fprintln(out)
	for _, note := range c.Notes {
		fmt.Fprintf(out, "note: %s\n", note)
	}
}

// lasts is since when the state is so, and until when if that is known.
func (c *ClaimWhy) lasts(now time.Time) string {
	var text string
	if c.Since != nil && c.State != pvc.Free && c.State != pvc.Unknown {
		text = " for " + ageOf(c.Since, now)
	}
	if c.Until != nil {
		text += ", " + ageOf(&now, *c.Until) + " left"
	}
	return text
}

func (v *Volume) String() string {
	switch {
	case v.Standing == volumeGone:
		return v.Name + ", which is not there"
	case v.Standing == volumeElsewhere:
		return v.Name + ", not bound to this claim"
	case v.Capacity == "":
		return v.Name + ", reclaim policy " + cmp.Or(v.ReclaimPolicy, "unknown")
	}
	return v.Name + ", " + v.Capacity + ", reclaim policy " + cmp.Or(v.ReclaimPolicy, "unknown")
}

// deletion is what a DELETE would be answered.
func (c *ClaimWhy) deletion(out io.Writer) {
	d := c.Deletion
	if d == nil {
		return
	}
	fmt.Fprint(out, "\nIF DELETED NOW (tried on the server; nothing was deleted)\n")
	switch inquiry.Outcome(d.Outcome) {
	case inquiry.Accepted:
		fmt.Fprintf(out, "  accepted: %s\n", c.afterwards())
	case inquiry.Refused:
		fmt.Fprintf(out, "  refused by %s: %s\n", d.RefusedBy, d.Message)
	case inquiry.NotAllowed:
		fmt.Fprintf(out, "  you may not delete it, so that nothing more can be tried: %s\n", d.Message)
	default:
		fmt.Fprintf(out, "  cannot tell: %s\n", d.Message)
	}
	for _, warning := range d.Warnings {
		fmt.Fprintf(out, "  with a warning: %s\n", warning)
	}
}

// afterwards is what becomes of a claim whose DELETE is accepted.
func (c *ClaimWhy) afterwards() string {
	keeping := c.keepingDeleted()
	switch {
	case len(keeping) > 0:
		return "it would stay, on its way out, until " + letGo(keeping) + "; that cannot be taken back"
	case slices.ContainsFunc(c.Unread, func(u pvc.Unread) bool { return u.What == pvc.UnreadPods }):
		return "whether a pod would keep it cannot be told"
	case c.State == pvc.Draining, c.State == pvc.Doomed:
		return "it is on its way out already"
	}
	return "it would go at once; that cannot be taken back"
}

func (c *ClaimWhy) holders(out io.Writer, now time.Time) {
	if len(c.Holders) == 0 {
		return
	}
	fmt.Fprintln(out)
	var lines strings.Builder
	table := newTable(&lines, "USED BY", "HOLDS", "SINCE", "PHASE", "WHY")
	for _, h := range c.Holders {
		why := h.Why
		if h.Leaving != nil {
			why += ", " + whenGone(*h.Leaving, now)
		}
		row(table, h.Name, yes(h.Holds), ageOf(h.Since, now), dash(h.Phase), why)
	}
	table.Flush()
	header, rows, _ := strings.Cut(lines.String(), "\n")
	fmt.Fprintln(out, header)
	for i, line := range strings.Split(strings.TrimSuffix(rows, "\n"), "\n") {
		fmt.Fprintf(out, "%s\n    %s\n", line, proof(c.Holders[i]))
	}
}

// proof stands below a holder: beside it, no terminal would be wide enough.
func proof(h pvc.Explained) string {
	if h.UID == "" {
		return "by " + h.Proof
	}
	return "by " + h.Proof + ", uid " + string(h.UID)
}

// whenGone tells when a pod is to have ended: its deletion timestamp is that moment.
func whenGone(at, now time.Time) string {
	if now.Before(at) {
		return "to be gone in " + ageOf(&now, at)
	}
	return "was to be gone " + ageOf(&at, now) + " ago"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (c *ClaimWhy) idle(out io.Writer) {
	for _, h := range c.Idle {
		what := "would use it, and is idle: " + h.Phase
		switch {
		case h.Finished():
			what = "used it, and has finished"
		case h.AwaitsEnd():
			what = "makes claims of this name, and does not use this one: " + h.Phase
		}
		fmt.Fprintf(out, "\n%s %s (%s)\n", h.Name, what, h.Proof)
	}
}

func (c *ClaimWhy) finalizers(out io.Writer) {
	if len(c.Finalizers) == 0 {
		return
	}
	fmt.Fprintln(out)
	table := newTable(out, "FINALIZER", "OWNER", "GOES WHEN")
	for _, f := range c.Finalizers {
		row(table, f.Key, f.Owner, f.Drops)
	}
	table.Flush()
}

func (c *ClaimWhy) blockers(out io.Writer) {
	if len(c.Blockers) == 0 {
		return
	}
	fmt.Fprint(out, "\nIN THE WAY\n")
	for _, b := range c.Blockers {
		fmt.Fprintf(out, "  %s: %s\n", b.Of, b.What)
		if !slices.ContainsFunc(c.Actions, func(s pvc.Suggestion) bool { return strings.HasSuffix(s.Do, b.Remedy) }) {
			fmt.Fprintf(out, "      %s\n", b.Remedy)
			command(out, b.Command)
		}
	}
}

func (c *ClaimWhy) unread(out io.Writer) {
	if len(c.Unread) == 0 {
		return
	}
	fmt.Fprint(out, "\nCANNOT TELL\n")
	for _, u := range c.Unread {
		what := ""
		if u.MayHold {
			what = ": what holds the claim may be among them"
		}
		fmt.Fprintf(out, "  %s: %s%s\n", u.What, u.Why, what)
	}
}

// todo is in the order in which it helps: a pod that ends before the claim is
// deleted may be back by then.
func (c *ClaimWhy) todo() string {
	switch {
	case c.AskedBy != "":
		return "TO FREE IT (the fewest deeds)"
	case c.Refused:
		return "TO FREE IT (the fewest deeds)"
	}
	return "IF IT IS TO GO: delete it, and then (the fewest deeds)"
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
			fmt.Fprintf(out, " (frees %s)", few(s.Frees, len(s.Frees)))
		}
		fmt.Fprintln(out)
		command(out, s.Command)
	}
}

func command(out io.Writer, command string) {
	if command != "" {
		fmt.Fprintf(out, "      %s\n", command)
	}
}

func (c *ClaimWhy) then(out io.Writer) {
	fmt.Fprint(out, "\nTHEN, once it is gone\n")
	for _, then := range c.Then {
		fmt.Fprintf(out, "  %s\n", then)
	}
	if c.Release != "" {
		fmt.Fprintf(out, "\nTo let it be deleted while it is in use all the same:\n      %s\n", c.Release)
	}
}

// foot is how old what was used is.
func (c *ClaimWhy) foot(out io.Writer, now time.Time) {
	from := "from the API server's cache, which may be some seconds behind (--live asks for the newest)"
	if c.Live {
		from = "live"
	}
	fmt.Fprintf(out, "\nread %s ago, %s", age(&c.ReadAt, now), from)
	if c.VerifiedAt != nil {
		fmt.Fprintf(out, "; operator last confirmed this %s ago", ageOf(c.VerifiedAt, now))
	}
	fmt.Fprintln(out)
}

func ageOf(at *time.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	return age(&metav1.Time{Time: *at}, now)
}
