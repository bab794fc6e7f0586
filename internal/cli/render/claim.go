package render

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/cli/page"
	clipvc "lockstep.dev/lockstep/internal/cli/pvc"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/terminal"
)

// ClaimWhy is what "why pvc/NAME -o json" prints. The fields of the explanation stand beside these.
type ClaimWhy struct {
	metav1.TypeMeta `json:",inline"`

	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	pvc.Explanation
	// ModeFrom says where the mode was read.
	ModeFrom string `json:"modeFrom"`
	// Volume is the volume of the PVC.
	Volume *Volume `json:"volume,omitempty"`
	// Deletion is the answer to a DELETE as a dry run, with --if-deleted.
	Deletion *Deletion `json:"deletion,omitempty"`
	// AskedBy is "unknown" for a terminating PVC: the object does not record the user.
	AskedBy string `json:"askedBy,omitempty"`
	// ReadAt is when the read began. Live is always true.
	ReadAt metav1.Time `json:"readAt"`
	Live   bool        `json:"live"`
}

// Deletion is the API server's answer to a DELETE of a PVC.
type Deletion struct {
	// Outcome is Accepted or Refused.
	Outcome string `json:"outcome"`
	// Message is the reason of a refusal, as the API server gives it.
	Message string `json:"message,omitempty"`
}

// Outcomes of a DELETE.
const (
	Accepted = "Accepted"
	Refused  = "Refused"
)

// Volume is the volume of a PVC.
type Volume struct {
	Name string `json:"name"`
	// Standing is Bound to the PVC, Elsewhere or Gone; absent if it was not read.
	Standing      string `json:"standing,omitempty"`
	ReclaimPolicy string `json:"reclaimPolicy,omitempty"`
	Capacity      string `json:"capacity,omitempty"`
}

// ClaimWhyList holds several PVCs.
type ClaimWhyList struct {
	metav1.TypeMeta `json:",inline"`

	Items []*ClaimWhy `json:"items"`
	// Free is how many PVCs are not in use, and left out.
	Free int `json:"free"`
}

// Claim reports on one PVC.
func Claim(found *clipvc.Found) *ClaimWhy {
	c := &ClaimWhy{
		TypeMeta: page.Kind("ClaimWhy"), Namespace: found.Claim.Namespace, Name: found.Claim.Name,
		Explanation: pvc.Why(found.Case), ModeFrom: found.ModeFrom, Volume: volume(found),
		ReadAt: metav1.NewTime(found.Now.UTC().Truncate(time.Second)), Live: true,
	}
	if c.terminating() {
		c.AskedBy = "unknown"
	}
	return c
}

func volume(found *clipvc.Found) *Volume {
	if found.Claim.Spec.VolumeName == "" {
		return nil
	}
	v := &Volume{Name: found.Claim.Spec.VolumeName}
	if size, ok := found.Claim.Status.Capacity["storage"]; ok {
		v.Capacity = size.String()
	}
	if found.Volume != nil {
		v.Standing, v.ReclaimPolicy = volumeBound, string(found.Volume.Spec.PersistentVolumeReclaimPolicy)
	}
	switch {
	case found.VolumeGone:
		v.Standing = volumeGone
	case found.VolumeIsAnothers():
		v.Standing = volumeElsewhere
	}
	return v
}

// The relation of a volume to the PVC that names it.
const (
	volumeBound     = "Bound"
	volumeElsewhere = "Elsewhere"
	volumeGone      = "Gone"
)

// Claims reports on several PVCs.
func Claims(all []*ClaimWhy) *ClaimWhyList {
	return &ClaimWhyList{TypeMeta: page.Kind("ClaimWhyList"), Items: all}
}

// Overview reports on PVCs that are in use, terminating or unknown, and counts the rest.
// Terminating PVCs come first, then those that refuse a DELETE.
func Overview(all []*ClaimWhy) *ClaimWhyList {
	l := Claims([]*ClaimWhy{})
	for _, c := range all {
		if c.State == pvc.Free && len(c.Holders) == 0 {
			l.Free++
			continue
		}
		l.Items = append(l.Items, c)
	}
	slices.SortStableFunc(l.Items, func(a, b *ClaimWhy) int { return a.rank() - b.rank() })
	return l
}

func (c *ClaimWhy) rank() int {
	switch {
	case c.terminating():
		return 0
	case c.Refused:
		return 1
	}
	return 2
}

func (c *ClaimWhy) terminating() bool { return c.State == pvc.Draining || c.State == pvc.Doomed }

// Write writes the state, what keeps the PVC, the next steps, and what becomes of the data.
func (c *ClaimWhy) Write(p *page.Page) {
	c.head(p)
	var finalizers []page.Row
	for _, f := range c.Finalizers {
		finalizers = append(finalizers, page.Row{f.Key, f.Owner, f.Drops})
	}
	p.Table(page.Row{"FINALIZER", "OWNER", "REMOVED WHEN"}, finalizers)
	c.holders(p)
	p.Section("TO KEEP THE DATA, before anything else", steps(c.Rescue)...)
	title := "IF IT IS TO GO: delete it, and then"
	if c.terminating() || c.Refused {
		title = "TO FREE IT"
	}
	p.Section(title, steps(c.Actions)...)
	p.Section("TO DELETE IT", steps(c.Delete)...)
	if c.Deletion != nil {
		answer := "accepted: it goes once its finalizers are gone; this cannot be undone"
		if c.Deletion.Outcome == Refused {
			answer = "refused: " + c.Deletion.Message
		}
		p.Section("IF DELETED NOW (a dry run: nothing was deleted)", answer)
	}
	p.Section("ONCE IT IS GONE", c.Then...)
	if c.Release != "" {
		p.Section("To let it be deleted while it is in use:", "    "+c.Release)
	}
	confirmed := ""
	if c.VerifiedAt != nil {
		confirmed = "; operator last confirmed this " + p.AgeOf(c.VerifiedAt) + " ago"
	}
	p.Gap()
	p.Linef("read %s ago%s", p.Age(&c.ReadAt), confirmed)
}

func (c *ClaimWhy) head(p *page.Page) {
	p.Linef("pvc/%s in namespace %s %s.", c.Name, c.Namespace, c.Summary)
	state := "state " + string(c.State)
	if c.Since != nil && c.State != pvc.Free && c.State != pvc.Unknown {
		state += " for " + p.AgeOf(c.Since)
	}
	if c.Until != nil {
		left := page.Page{Now: *c.Until}
		state += ", " + left.AgeOf(&p.Now) + " left"
	}
	state += fmt.Sprintf("; mode %s (%s)", c.Mode, c.ModeFrom)
	if c.Volume != nil {
		state += "; volume " + c.Volume.String()
	}
	p.Linef("%s", state)
	for _, note := range c.Notes {
		p.Linef("note: %s", note)
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

// keepingDeleted are the holders and finalizers that keep the PVC once it is deleted.
func (c *ClaimWhy) keepingDeleted() (names []string) {
	for _, h := range c.Holders {
		if h.Holds && (h.Reason == pvc.BoundPod || h.Reason == pvc.UnboundPod || h.Reason == pvc.BeingCopied) {
			names = append(names, h.Name)
		}
	}
	for _, f := range c.Finalizers {
		if f.Owner == pvc.UnknownOwner {
			names = append(names, "finalizer "+f.Key)
		}
	}
	return names
}

// holders lists each holder with its proof, and what could not be read.
func (c *ClaimWhy) holders(p *page.Page) {
	var lines []string
	for _, h := range c.Holders {
		holds, proof := "does not hold", "    proof: "+h.Proof
		if h.Holds {
			holds = "holds"
		}
		if h.Since != nil {
			holds += " (" + p.AgeOf(h.Since) + ")"
		}
		if h.UID != "" {
			proof += ", uid " + string(h.UID)
		}
		lines = append(lines, h.Name+": "+holds+"; "+h.Why, proof)
	}
	p.Section("USED BY", lines...)
	for _, h := range c.Idle {
		p.Gap()
		p.Linef("%s does not use it now: %s (%s)", h.Name, h.Phase, h.Proof)
	}
	lines = nil
	for _, u := range c.Unread {
		mayHold := ""
		if u.MayHold {
			mayHold = "; it may hold the PVC"
		}
		lines = append(lines, u.What+": "+u.Why+mayHold)
	}
	p.Section("NOT READ", lines...)
}

// steps are suggestions, numbered if there are several, each above its command.
func steps(all []pvc.Suggestion) (lines []string) {
	for i, s := range all {
		line := s.Do
		if len(all) > 1 {
			line = fmt.Sprintf("%d. %s", i+1, line)
		}
		if len(s.Frees) > 1 {
			line += " (frees " + page.Few(s.Frees) + ")"
		}
		lines = append(lines, line)
		if s.Command != "" {
			lines = append(lines, "    "+s.Command)
		}
	}
	return lines
}

// Write writes a line for each PVC.
func (l *ClaimWhyList) Write(p *page.Page) {
	if len(l.Items) == 0 && l.Free == 0 {
		p.Linef("there are no PVCs")
		return
	}
	if len(l.Items) == 0 {
		p.Linef("%s, none in use or being deleted", page.Counted(l.Free, "PVC"))
		return
	}
	columns := page.Row{"NAMESPACE", "PVC", "STATE", "SINCE", "DELETE", "HELD BY", "TO FREE IT"}
	var rows []page.Row
	for _, c := range l.Items {
		rows = append(rows, c.cells(p))
	}
	p.Table(columns, rows)
	if l.Free > 0 {
		p.Gap()
		p.Linef("and %s not in use", page.Counted(l.Free, "PVC"))
	}
	p.Gap()
	p.Linef("for details: kubectl lockstep why pvc/NAME")
}

func (c *ClaimWhy) cells(p *page.Page) page.Row {
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
	return page.Row{c.Namespace, c.Name, c.State, p.AgeOf(c.Since), deletion, terminal.Few(keeping, 1), next}
}

func (c *ClaimWhy) next() string {
	if len(c.Actions) == 0 && len(c.Unread) > 0 {
		return c.Unread[0].What + ": " + c.Unread[0].Why
	}
	var todo []string
	for _, a := range c.Actions {
		todo = append(todo, a.Do)
	}
	return terminal.Few(todo, 1)
}

// Release returns what a release means: the holders, what is written, and what a DELETE then does.
func Release(c *ClaimWhy, now time.Time) string {
	deletion := "it is removed at once"
	if keeping := c.keepingDeleted(); len(keeping) > 0 {
		deletion = "no new pod can start on it, and it stays until these are gone: " + page.Few(keeping)
	}
	effects := []string{
		fmt.Sprintf("write %s=%s on the PVC: a DELETE is no longer refused", pvc.ReleaseAnnotation, c.UID),
		"delete nothing; after a DELETE by any user, " + deletion + "; this cannot be undone",
	}
	for _, line := range c.Then {
		effects = append(effects, "once it is gone: "+line)
	}
	return page.TextOf(now, func(p *page.Page) {
		c.head(p)
		c.holders(p)
		p.Section("THIS WILL", effects...)
		if c.Volume != nil && c.Volume.Standing == volumeBound && c.Volume.ReclaimPolicy == string(corev1.PersistentVolumeReclaimDelete) {
			p.Section("To keep the data, before anything else:", "    "+pvc.RetainCommand(c.Volume.Name))
		}
	})
}

// ReleaseOfNamespace returns the same for a namespace.
func ReleaseOfNamespace(n client.Object) string {
	return page.TextOf(time.Time{}, func(p *page.Page) {
		p.Linef("namespace/%[1]s has PVCs in use: %[2]s. Their holders: kubectl lockstep why pvc -n %[1]s",
			n.GetName(), n.GetAnnotations()[pvc.HeldClaimsAnnotation])
		p.Section("THIS WILL",
			fmt.Sprintf("write %s=%s on the namespace: a DELETE is no longer refused", pvc.ReleaseAnnotation, n.GetUID()),
			"delete nothing; a DELETE by any user then deletes all in it, PVCs in use included")
	})
}
