package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/action"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// SetPlan is what "plan -o json" prints for one set.
type SetPlan struct {
	metav1.TypeMeta `json:",inline"`

	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
	// File is the source of the spec; absent when it is the cluster's.
	File string `json:"file,omitempty"`
	// Exists reports whether the cluster has the set.
	Exists bool `json:"exists"`
	// InStep reports whether the plan has no action and no wait.
	InStep bool `json:"inStep"`
	// Warnings are those of the API server for a file.
	Warnings []string `json:"warnings,omitempty"`
	// Parts are the set first, then its groups by rising index. Empty parts are left out.
	Parts []Part `json:"parts,omitempty"`
}

// Part is the plan for the set itself, or for one group.
type Part struct {
	// Group is the index of the group; absent for the set itself.
	Group *int `json:"group,omitempty"`
	// Actions are carried out in this order.
	Actions []Action `json:"actions,omitempty"`
	Waits   []Wait   `json:"waits,omitempty"`
}

// Action is one write.
type Action struct {
	// Verb is create, apply, delete or status.
	Verb   string `json:"verb"`
	Object Object `json:"object"`
	// Reason is a stable code, Message a sentence for people.
	Reason        string        `json:"reason"`
	Message       string        `json:"message"`
	Preconditions Preconditions `json:"preconditions"`
}

// Object names an object, and its incarnation where it has one.
type Object struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
}

// Preconditions must hold at the moment of a write. Otherwise the operator writes nothing and
// reconciles again.
type Preconditions struct {
	// Absent: no object has the name.
	Absent bool `json:"absent,omitempty"`
	// UID and ResourceVersion are the incarnation and version to be written.
	UID             types.UID `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// Alive is an owner that must exist under its UID and not be terminating.
	Alive *Object `json:"alive,omitempty"`
	// Gone is an owner that must not exist any more under its UID.
	Gone *Object `json:"gone,omitempty"`
}

// SetPlanList holds the plans for several sets of one file.
type SetPlanList struct {
	metav1.TypeMeta `json:",inline"`

	Items []SetPlan `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (p *SetPlan) DeepCopyObject() runtime.Object { c := *p; return &c }

// DeepCopyObject implements runtime.Object.
func (l *SetPlanList) DeepCopyObject() runtime.Object { c := *l; return &c }

// Plan returns the plan of a survey.
func Plan(s clilws.Survey) *SetPlan {
	set := s.Set.Set
	plan := &SetPlan{TypeMeta: kind(kindPlan), Namespace: set.Namespace, Name: set.Name, UID: set.UID, Exists: set.UID != ""}
	plan.add(nil, s.Plan)
	for _, g := range s.Groups {
		plan.add(&g.Index, g.Plan)
	}
	plan.InStep = len(plan.Parts) == 0
	return plan
}

// NewPlanList returns a list without plans.
func NewPlanList() *SetPlanList {
	return &SetPlanList{TypeMeta: kind(kindPlanList), Items: []SetPlan{}}
}

func (p *SetPlan) add(group *int, plan lws.Plan) {
	part := Part{Group: group, Waits: waits(plan.Waits)}
	for _, a := range plan.Actions {
		part.Actions = append(part.Actions, actionOf(a))
	}
	if len(part.Actions)+len(part.Waits) > 0 {
		p.Parts = append(p.Parts, part)
	}
}

func actionOf(a action.Action) Action {
	target := a.Target()
	shown := Action{Verb: a.Verb(), Object: *objectOf(&target), Reason: a.Why().Code, Message: a.Why().Sentence}
	shown.Preconditions = Preconditions{UID: target.UID, ResourceVersion: target.ResourceVersion}
	switch a := a.(type) {
	case action.Create:
		shown.Preconditions = Preconditions{Absent: true, Alive: objectOf(&a.Owner)}
	case action.Apply:
		shown.Preconditions.Alive = objectOf(a.Adopter)
	case action.Tie:
		shown.Preconditions.Alive = objectOf(a.To)
	case action.Delete:
		shown.Preconditions.Gone = objectOf(a.OwnerGone)
	}
	return shown
}

func objectOf(ref *identity.Ref) *Object {
	if ref == nil {
		return nil
	}
	return &Object{Kind: string(ref.Kind), Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
}

// WriteText writes the plan as an indented list.
func (p *SetPlan) WriteText(out io.Writer, now time.Time) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s in namespace %s", p.Name, p.Namespace)
	if p.File != "" {
		fmt.Fprintf(&text, ", if %s were applied now", p.File)
	}
	if !p.Exists {
		text.WriteString(" (no such set yet)")
	}
	text.WriteString(":\n")
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

func (p Part) write(out io.Writer, now time.Time) {
	if p.Group == nil {
		fmt.Fprintln(out, "the set")
	} else {
		fmt.Fprintf(out, "group %d\n", *p.Group)
	}
	for _, a := range p.Actions {
		verb := a.Verb
		if verb == "status" {
			verb = "write the status of"
		}
		fmt.Fprintf(out, "  %s %s %s\n      because %s (%s)\n", verb, strings.ToLower(a.Object.Kind), a.Object.Name, inLine(a.Message), a.Reason)
		if text := a.Preconditions.text(); text != "" {
			fmt.Fprintf(out, "      only if %s\n", text)
		}
	}
	for _, w := range p.Waits {
		fmt.Fprintf(out, "  wait: %s (%s)", inLine(w.Message), w.Reason)
		if w.Until != nil {
			fmt.Fprintf(out, ", checks again in %s at the latest", max(w.Until.Sub(now), 0).Round(time.Second))
		}
		fmt.Fprintln(out)
	}
}

func (p Preconditions) text() string {
	var all []string
	if p.Absent {
		all = append(all, "no object has the name")
	}
	if p.UID != "" {
		all = append(all, "its uid is "+string(p.UID))
	}
	if p.ResourceVersion != "" {
		all = append(all, "its version is "+p.ResourceVersion)
	}
	if o := p.Alive; o != nil {
		all = append(all, fmt.Sprintf("%s %s (uid %s) exists and is not terminating", strings.ToLower(o.Kind), o.Name, o.UID))
	}
	if o := p.Gone; o != nil {
		all = append(all, fmt.Sprintf("%s %s (uid %s) is gone", strings.ToLower(o.Kind), o.Name, o.UID))
	}
	return strings.Join(all, ", ")
}
