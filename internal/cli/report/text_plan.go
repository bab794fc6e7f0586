package report

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// WriteText writes the plan as an indented list.
func (p *SetPlan) WriteText(out io.Writer, now time.Time) error {
	var text strings.Builder
	p.header(&text)
	for _, warning := range p.Warnings {
		fmt.Fprintf(&text, "warning: %s\n", warning)
	}
	if p.InStep {
		fmt.Fprintln(&text, "in step: nothing to do")
	}
	for _, part := range p.Parts {
		part.write(&text, now)
	}
	return show(out, text.String())
}

func (p *SetPlan) header(out io.Writer) {
	source := ""
	switch {
	case p.File != "" && p.Exists:
		source = fmt.Sprintf(", if %s were applied now", p.File)
	case p.File != "":
		source = fmt.Sprintf(", if %s were created now (there is no such set)", p.File)
	}
	fmt.Fprintf(out, "%s in namespace %s%s:\n", p.Name, p.Namespace, source)
}

func (p Part) write(out io.Writer, now time.Time) {
	if p.Group == nil {
		fmt.Fprintln(out, "the set")
	} else {
		fmt.Fprintf(out, "group %d\n", *p.Group)
	}
	for _, a := range p.Actions {
		fmt.Fprintf(out, "  %s %s %s\n      because %s (%s)\n", a.verb(), strings.ToLower(a.Object.Kind), a.Object.Name, inLine(a.Message), a.Reason)
		if text := a.Preconditions.text(); text != "" {
			fmt.Fprintf(out, "      only if %s\n", text)
		}
	}
	for _, w := range p.Waits {
		fmt.Fprintf(out, "  wait: %s (%s)%s\n", inLine(w.Message), w.Reason, until(w, now))
	}
}

func (a Action) verb() string {
	if a.Verb == "status" {
		return "write the status of"
	}
	return a.Verb
}

func (p Preconditions) text() string {
	var all []string
	if p.Absent {
		all = append(all, "nothing bears the name")
	}
	if p.UID != "" {
		all = append(all, "it is uid "+string(p.UID))
	}
	if p.ResourceVersion != "" {
		all = append(all, "it is at version "+p.ResourceVersion)
	}
	if p.Alive != nil {
		all = append(all, p.Alive.text()+" is alive")
	}
	if p.Gone != nil {
		all = append(all, p.Gone.text()+" is gone")
	}
	return strings.Join(all, ", ")
}

func (o Object) text() string {
	text := strings.ToLower(o.Kind) + " " + o.Name
	if o.UID != "" {
		text += " (uid " + string(o.UID) + ")"
	}
	return text
}

func until(w Wait, now time.Time) string {
	if w.Until == nil {
		return ""
	}
	return fmt.Sprintf(", checks again in %s at the latest", max(w.Until.Sub(now), 0).Round(time.Second))
}

// WriteText writes one plan after the other.
func (l *SetPlanList) WriteText(out io.Writer, now time.Time) error {
	for i := range l.Items {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := l.Items[i].WriteText(out, now); err != nil {
			return err
		}
	}
	return nil
}
