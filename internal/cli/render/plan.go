package render

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/action"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// SetPlan is what "plan -o json" prints for one set.
type SetPlan struct {
	metav1.TypeMeta `json:",inline"`
	Namespace       string    `json:"namespace"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid,omitempty"`
	// File is the source of the spec; absent when it is the cluster's.
	File string `json:"file,omitempty"`
	// Exists reports whether the cluster has the set.
	Exists bool `json:"exists"`
	// InStep reports whether the plan has no action and no wait, and the set is as wanted.
	InStep bool `json:"inStep"`
	// Unattended is why no operator carries the plan out; absent while one does, or where you may not see it.
	Unattended *Wait `json:"unattended,omitempty"`
	// Warnings are those of the API server for a file.
	Warnings []string `json:"warnings,omitempty"`
	// Consequences say what storing a file does; absent for a set of the cluster. If HidesWrites, the text has no parts.
	Consequences interface{ Write(*page.Page) } `json:"consequences,omitempty"`
	HidesWrites  bool                           `json:"-"`
	// Parts are the set first, then its groups by rising index. Empty parts are left out.
	Parts []Part `json:"parts,omitempty"`
}

// Part is the plan for the set itself, or for one group.
type Part struct {
	// Group is the index of the group; absent for the set itself.
	Group *int `json:"group,omitempty"`
	// LastGroup is the index of the last of several groups that wait for the same; absent for one group.
	LastGroup int `json:"lastGroup,omitempty"`
	// Key names a Hash group, and is empty for any other.
	Key string `json:"key,omitempty"`
	// Actions are carried out in this order.
	Actions []Action `json:"actions,omitempty"`
	Waits   []Wait   `json:"waits,omitempty"`
}

// Action is one write.
type Action struct {
	// Verb is create, apply, annotate, relabel, set-finalizers, set-owner, remove-gate, condition, delete or status.
	Verb   string       `json:"verb"`
	Object identity.Ref `json:"object"`
	// Reason is a stable code, Message a sentence for people.
	Reason        string        `json:"reason"`
	Message       string        `json:"message"`
	Preconditions Preconditions `json:"preconditions"`
	// Foreground is set where what the object owns is deleted first, and After where what precedes it must be gone first.
	Foreground bool `json:"foreground,omitempty"`
	After      bool `json:"after,omitempty"`
}

// Preconditions must hold at the moment of a write. Otherwise the operator writes nothing and reconciles again.
type Preconditions struct {
	// Absent: no object has the name.
	Absent bool `json:"absent,omitempty"`
	// UID and ResourceVersion are the incarnation and version to be written.
	UID             types.UID `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// Alive is an owner that must exist under its UID and not be terminating.
	Alive *identity.Ref `json:"alive,omitempty"`
	// Gone is an owner that must not exist any more under its UID.
	Gone *identity.Ref `json:"gone,omitempty"`
	// Relies says what must hold of other objects, which are read live before the write.
	Relies []string `json:"relies,omitempty"`
}

// SetPlanList holds the plans for several sets of one file.
type SetPlanList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []page.Report `json:"items"`
}

// Plan returns the plan of a survey.
func Plan(s clilws.Survey) *SetPlan {
	set := s.Set.Set
	plan := &SetPlan{TypeMeta: page.Kind("SetPlan"), Namespace: set.Namespace, Name: set.Name, UID: set.UID, Exists: set.UID != "", Unattended: unattended(s)}
	plan.add(s, Part{}, s.Plan)
	for _, g := range s.Groups {
		plan.add(s, Part{Group: &g.Index, Key: g.Key}, g.Plan)
	}
	states := s.Standing.States
	states[lws.GroupReady] = 0
	isAsWanted := set.DeletionTimestamp == nil && states == [lws.GroupStates]int32{} && s.Standing.TargetReady == s.Standing.Target && !s.Standing.Pending
	if plan.InStep = len(plan.Parts) == 0 && isAsWanted; len(plan.Parts) == 0 && !isAsWanted {
		plan.Parts = others(Status(s))
	}
	return plan
}

// others are the waits of a status, which are for other controllers where the operator waits for nothing.
func others(status *SetStatus) []Part {
	all := Part{Waits: status.Waiting}
	if len(all.Waits) == 0 {
		all.Waits = []Wait{waitf(CodeNotReady, "%d of %d groups are ready, %d are up to date", status.Ready, status.Desired, status.UpToDate)}
	}
	parts := []Part{all}
	for _, g := range status.Groups {
		if len(g.Waiting) > 0 {
			parts = append(parts, Part{Group: &g.Index, LastGroup: g.LastIndex, Key: g.Key, Waits: g.Waiting})
		}
	}
	return parts
}

// add adds a part with what a plan does, unless it does nothing.
func (p *SetPlan) add(s clilws.Survey, part Part, plan lws.Plan) {
	part.Waits = waits(s, plan)
	for _, a := range plan.Actions {
		part.Actions = append(part.Actions, actionOf(a))
	}
	if len(part.Actions)+len(part.Waits) > 0 {
		p.Parts = append(p.Parts, part)
	}
}

func actionOf(a action.Action) Action {
	target := a.Target()
	about := a.About()
	shown := Action{Verb: about.Verb, Object: target, Reason: about.Because.Code, Message: about.Because.Sentence}
	shown.Preconditions = Preconditions{UID: target.UID, ResourceVersion: target.ResourceVersion}
	switch a := a.(type) {
	case action.Create:
		shown.Preconditions = Preconditions{Absent: true, Alive: &a.Owner}
	case action.Apply:
		shown.Preconditions.Alive = a.Adopter
	case action.SetOwner:
		shown.Preconditions.Alive = a.To
	case action.Delete:
		if shown.Preconditions.Gone = a.OwnerGone; a.AnyVersion {
			shown.Preconditions.ResourceVersion = ""
		}
		shown.Foreground, shown.After = a.Foreground, a.After
	case action.Ungate:
		if len(a.Annotations) == 0 {
			shown.Preconditions.ResourceVersion = ""
		}
	case action.SetCondition:
		shown.Preconditions.ResourceVersion = ""
	}
	for _, standing := range about.Relies {
		shown.Preconditions.Relies = append(shown.Preconditions.Relies, standing.String())
	}
	return shown
}

// Write writes the plan as an indented list.
func (p *SetPlan) Write(to *page.Page) {
	to.Gap()
	state := ""
	if p.File != "" {
		state = ", if " + p.File + " were applied now"
	}
	if !p.Exists {
		state += " (no such set yet)"
	}
	to.Linef("%s in namespace %s%s:", p.Name, p.Namespace, state)
	if p.Unattended != nil {
		to.Linef("%s (%s)", p.Unattended.Message, p.Unattended.Reason)
	}
	for _, warning := range p.Warnings {
		to.Linef("warning: %s", warning)
	}
	if p.Consequences != nil {
		p.Consequences.Write(to)
	}
	if p.HidesWrites {
		return
	}
	if p.InStep {
		to.Linef("in step: nothing to do")
	}
	for _, part := range p.Parts {
		part.Write(to)
	}
}

// Write writes one plan after the other.
func (l *SetPlanList) Write(to *page.Page) {
	for i := range l.Items {
		l.Items[i].Write(to)
	}
}

func (p Part) Write(to *page.Page) {
	switch {
	case p.Group == nil:
		to.Linef("the set")
	case p.Key != "":
		to.Linef("group %s", p.Key)
	case p.LastGroup > 0:
		to.Linef("groups %d-%d", *p.Group, p.LastGroup)
	default:
		to.Linef("group %d", *p.Group)
	}
	for _, a := range p.Actions {
		verb := a.Verb
		if verb == "status" {
			verb = "write the status of"
		}
		to.Linef("  %s %s", verb, a.Object)
		to.Linef("      because %s (%s)", a.Message, a.Reason)
		if needs := a.Preconditions.needs(); len(needs) > 0 {
			to.Linef("      only if %s", strings.Join(needs, ", "))
		}
		if a.After {
			to.Linef("      once the objects above are gone")
		}
	}
	for _, w := range p.Waits {
		again := ""
		if w.Until != nil {
			again = fmt.Sprintf(", checks again in %s at the latest", max(w.Until.Sub(to.Now), 0).Round(time.Second))
		}
		to.Linef("  wait: %s (%s)%s", w.Message, w.Reason, again)
	}
}

func (p Preconditions) needs() (all []string) {
	if p.Absent {
		all = append(all, "no object has the name")
	}
	if p.UID != "" {
		all = append(all, "its uid is "+string(p.UID))
	}
	if p.ResourceVersion != "" {
		all = append(all, "its version is "+p.ResourceVersion)
	}
	if p.Alive != nil {
		all = append(all, fmt.Sprintf("%s (uid %s) exists and is not terminating", p.Alive, p.Alive.UID))
	}
	if p.Gone != nil {
		all = append(all, fmt.Sprintf("%s (uid %s) is gone", p.Gone, p.Gone.UID))
	}
	return append(all, p.Relies...)
}
