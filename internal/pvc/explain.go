package pvc

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Case is what an explanation is made from. A nil field was not read.
type Case struct {
	HoldView
	// Pods by UID, for what keeps a pod from ending.
	Pods map[types.UID]*corev1.Pod
	// Nodes by name; a node that does not exist is nil.
	Nodes  map[string]*corev1.Node
	Volume *corev1.PersistentVolume
	// VolumeGone reports that the PersistentVolume does not exist.
	VolumeGone bool
	Unread     []Unread
}

// Unread is a kind or an object that could not be read. It is never taken for absent.
type Unread struct {
	What string `json:"what"`
	Why  string `json:"why"`
	// MayHold reports that a holder may be among it.
	MayHold bool `json:"mayHold"`
}

// UnreadPods names pods that could not be read. Only pods keep a terminating PVC.
const UnreadPods = "pods"

// Explanation is what the operator decides about a PVC, its evidence and the next steps.
type Explanation struct {
	Claim   string    `json:"claim"`
	UID     types.UID `json:"uid"`
	State   State     `json:"state"`
	Summary string    `json:"summary"`
	Mode    string    `json:"mode"`
	// Since is the deletionTimestamp, or when the oldest holder began to hold.
	Since *time.Time `json:"since,omitempty"`
	// Until is when a cooling PVC is free.
	Until *time.Time `json:"until,omitempty"`
	// VerifiedAt is when the operator last confirmed the holders.
	VerifiedAt *time.Time `json:"verifiedAt,omitempty"`
	// Refused reports that the policy refuses a DELETE by the annotations of the PVC.
	Refused bool `json:"refused"`
	// Release is the command that lifts the refusal.
	Release    string      `json:"release,omitempty"`
	Finalizers []Finalizer `json:"finalizers,omitempty"`
	Holders    []Explained `json:"holders,omitempty"`
	Idle       []Holder    `json:"idle,omitempty"`
	// Actions are the next step for each holder and finalizer.
	Actions []Suggestion `json:"actions,omitempty"`
	// Delete is how to delete a PVC that refuses a DELETE now.
	Delete []Suggestion `json:"delete,omitempty"`
	// Then is what becomes of the data.
	Then []string `json:"then"`
	// Rescue is what keeps the data of a terminating PVC.
	Rescue []Suggestion `json:"rescue,omitempty"`
	Notes  []string     `json:"notes,omitempty"`
	Unread []Unread     `json:"unread,omitempty"`
}

// Explained is a holder, and whether it keeps the PVC.
type Explained struct {
	Holder
	Since *time.Time `json:"since,omitempty"`
	// Leaving is the deletionTimestamp of a terminating holder.
	Leaving *time.Time `json:"leaving,omitempty"`
	Holds   bool       `json:"holds"`
	Why     string     `json:"why"`
}

// Why explains a PVC by the decision that the operator takes from the same objects.
func Why(c Case) Explanation {
	c.Grace, c.Live = Grace, true
	verdict := DecideHold(c.HoldView)
	for i := range verdict.Idle {
		verdict.Idle[i].Released = "" // an idle workload holds nothing
	}
	holders := slices.Concat(verdict.Holders, c.stated(verdict.Holders))
	e := Explanation{
		Claim: c.Claim.Namespace + "/" + c.Claim.Name, UID: c.Claim.UID, Mode: c.Mode.String(), Idle: verdict.Idle,
		State: c.state(verdict, holders), Finalizers: each(c.Claim.Finalizers, finalizerOf),
		Refused: c.guarded() && !c.terminating(), Holders: each(holders, c.explained), Unread: c.Unread,
	}
	if c.guarded() {
		e.Release = ReleaseCommand(c.Claim)
	}
	c.times(&e)
	e.Actions, e.Delete, e.Rescue = c.actions(e.Holders), c.deletion(e), c.rescue()
	e.Then, e.Notes, e.Summary = c.then(holders, e.Idle), c.notes(e, holders), c.summary(e, holders)
	return e
}

func (c Case) terminating() bool { return c.Claim.DeletionTimestamp != nil }

// guarded is the policy's answer: it refuses a DELETE, or to remove finalizers of a terminating
// PVC. The policy reads the PVC alone.
func (c Case) guarded() bool {
	return c.Claim.Annotations[HoldersAnnotation] != "" && !Released(c.Claim)
}

// annotated is what the operator wrote on the PVC about its holders.
func (c Case) annotated() HoldersValue { return ParseHolders(c.Claim.Annotations[HoldersAnnotation]) }

// blind names what could not be read and may hold the PVC, or is empty.
func (c Case) blind() string {
	var names []string
	for _, u := range c.Unread {
		if u.MayHold && (!c.terminating() || u.What == UnreadPods) {
			names = append(names, u.What)
		}
	}
	return few(names)
}

// state is the verdict's, unless the annotation refuses more than the verdict would, or something could not be read.
func (c Case) state(verdict HoldVerdict, holders []Holder) State {
	annotation := c.annotated()
	switch {
	case c.terminating():
		return verdict.State
	case len(Refusing(holders)) > 0:
		return Held
	case !annotation.Until.IsZero():
		return Cooling
	case annotation.Names != "":
		return Held
	case c.blind() != "":
		return Unknown
	}
	return Free
}

func (c Case) times(e *Explanation) {
	if verified, err := time.Parse(time.RFC3339, c.Claim.Annotations[VerifiedAnnotation]); err == nil {
		e.VerifiedAt = &verified
	}
	switch {
	case c.terminating():
		e.Since = moment(c.Claim.DeletionTimestamp.Time)
	case e.State == Cooling:
		e.Since, e.Until = e.VerifiedAt, moment(c.annotated().Until)
	default:
		for _, h := range e.Holders {
			if h.Since != nil && (e.Since == nil || h.Since.Before(*e.Since)) {
				e.Since = h.Since
			}
		}
		if created := c.Claim.CreationTimestamp.Time; e.Since != nil && e.Since.Before(created) {
			e.Since = &created
		}
	}
}

func moment(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// stated are the holders that the operator named on the PVC and that were not found: their
// kind is unknown here or may not be read.
func (c Case) stated(found []Holder) (stated []Holder) {
	annotation := c.annotated()
	if c.terminating() || annotation.Names == Unverified || !annotation.Until.IsZero() {
		return nil
	}
	for _, name := range strings.Split(annotation.Names, ", ") {
		if name == "" || strings.HasPrefix(name, "+") || slices.ContainsFunc(found, func(h Holder) bool { return h.Name == name }) {
			continue
		}
		stated = append(stated, Holder{
			Name: said(name), Reason: Stated, Proof: "metadata.annotations[" + HoldersAnnotation + "]",
			Released: "the operator removes the annotation once it no longer holds",
		})
	}
	return stated
}

// explained adds to a holder whether it keeps the PVC: its finalizers, or the refusal of a DELETE.
func (c Case) explained(h Holder) Explained {
	keeps := h.Reason == BoundPod || h.Reason == BeingCopied || h.Reason == UnboundPod && c.recorded(h.UID)
	refuses := h.Reason != UnboundPod && c.guarded() && !c.terminating()
	e := Explained{Holder: h, Holds: keeps || refuses, Since: moment(h.since)}
	if pod := c.Pods[h.UID]; pod != nil {
		e.Since = moment(pod.CreationTimestamp.Time)
		if pod.DeletionTimestamp != nil {
			e.Leaving = moment(pod.DeletionTimestamp.Time)
		}
	}
	e.Why = because(e)
	return e
}

// recorded reports whether the use record of the PVC names a pod.
func (c Case) recorded(uid types.UID) bool {
	record, err := ParseRecord(c.Claim.Annotations[UsersAnnotation])
	return err == nil && slices.ContainsFunc(record, func(r Recorded) bool { return r.UID == uid })
}

func because(e Explained) string {
	switch {
	case e.Reason == BoundPod && isOver(corev1.PodPhase(e.Phase)):
		return "the pod has finished; it holds until it is deleted"
	case e.Reason == BoundPod && e.Leaving != nil:
		return "bound to node " + e.Node + ", and terminating"
	case e.Reason == BoundPod:
		return "bound to node " + e.Node
	case e.Reason == UnboundPod && e.Holds:
		return "named in the use record: it may be bound at any moment"
	case e.Reason == UnboundPod:
		return "not scheduled: it does not hold, and stays Pending if the PVC is deleted"
	case e.Reason == BeingCopied:
		return "its finalizer stays until the copy is made"
	case e.Reason == Stated:
		return "named by the operator; not found here"
	case e.Holds:
		return "a DELETE is refused for it"
	}
	return "wants the PVC; nothing refuses a DELETE"
}

// summary is one sentence whose subject is the PVC.
func (c Case) summary(e Explanation, holders []Holder) string {
	var keeping []string
	for _, h := range e.Holders {
		switch {
		case h.Holds && h.Reason == BoundPod:
			keeping = append(keeping, onNode(h.Object, h.Node))
		case h.Holds:
			keeping = append(keeping, h.Name)
		}
	}
	deletion := "accepted"
	switch {
	case e.Refused:
		deletion = "refused"
	case len(keeping) > 0:
		deletion += ", and the PVC stays until these end: " + few(keeping)
	}
	switch {
	case c.terminating() && len(keeping) > 0:
		return staysUntil(few(keeping))
	case c.terminating() && c.blind() != "":
		return "is being deleted; " + c.blind() + " could not be read, and may hold it"
	case c.terminating():
		return "is being deleted; no pod holds it"
	case e.State == Cooling:
		return "was in use by " + said(c.annotated().Names) + "; a DELETE is " + deletion + ", until " + e.Until.UTC().Format(time.RFC3339)
	case e.State == Unknown:
		return "may be in use: " + c.blind() + " could not be read"
	case e.State == Held && len(holders) == 0:
		return "was not checked by an operator yet: a DELETE is " + deletion
	case e.State == Held || len(keeping) > 0:
		return "is in use by " + namedHolders(told(holders)) + ": a DELETE is " + deletion
	}
	return "is not in use: a DELETE is " + deletion
}

// staysUntil is said of a terminating PVC in use: here, and in an event on it.
func staysUntil(names string) string { return "is being deleted, and stays until these end: " + names }

// confirmedLate is twice the time after which a running operator confirms a hold.
const confirmedLate = 2 * verifyEvery

// notes are facts that no other field of the explanation has.
func (c Case) notes(e Explanation, holders []Holder) (notes []string) {
	note := func(when bool, format string, args ...any) {
		if when {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	held, alive := c.Claim.Annotations[HoldersAnnotation] != "", !c.terminating()
	note(alive && Released(c.Claim), "the PVC bears a release token: a DELETE is accepted")
	note(alive && !held && c.Mode >= Hold && len(Refusing(holders)) > 0,
		"mode %s refuses a DELETE, and the PVC bears no hold yet: check that the operator runs", c.Mode)
	if e.Refused && e.VerifiedAt != nil {
		unconfirmed := c.Now.Sub(*e.VerifiedAt)
		note(unconfirmed > confirmedLate, "the operator has not confirmed the hold for %s: check that it runs and may read all workloads", unconfirmed.Round(time.Hour))
	}
	note(!alive && c.guarded(), "the annotation %s keeps its finalizers", HoldersAnnotation)
	note(alive && c.wished(), "delete-when-free is set: from mode barrier on, the operator deletes the PVC once its hold has ended")
	note(c.NamespaceEnding, "the namespace is being deleted")
	note(c.unreadableRecord(), "the use record cannot be read, which counts as in use: %s", UsersAnnotation)
	owned, owners := len(c.Claim.OwnerReferences) > 0, OwnersOf(c.Claim)
	note(owned && !c.World.OwnersGone, "owned by %s: the garbage collector deletes it with the last of them", owners)
	note(owned && c.World.OwnersGone, "its owners are gone or being deleted: %s; to keep a living PVC: kubectl patch pvc %s -n %s --type=merge -p '%s'",
		owners, c.Claim.Name, c.Claim.Namespace, Disown)
	return notes
}

// wished reports whether a user wants the PVC deleted when it is free.
func (c Case) wished() bool { return hasUID(c.Claim, IntentAnnotation) }

func (c Case) unreadableRecord() bool {
	_, err := ParseRecord(c.Claim.Annotations[UsersAnnotation])
	return err != nil
}

// maxSaid bounds how much of a text that others wrote is shown.
const maxSaid = 256

// said returns a text that others wrote, without control characters that would change the terminal of the reader.
func said(text string) string {
	plain := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?")))
	if len(plain) > maxSaid {
		return string(plain[:maxSaid-1]) + "…"
	}
	return string(plain)
}

// then is what becomes of the data once the PVC is gone.
func (c Case) then(holders, idle []Holder) []string {
	then := []string{c.volume()}
	for _, h := range append(holders, idle...) {
		switch {
		case h.match.Numbered && (h.Phase == "" || h.AwaitsEnd()):
			then = append(then, h.Name+" creates an empty PVC of the same name")
		case h.Reason == DesiredState && h.Phase == "":
			then = append(then, h.Name+" cannot start a pod until a PVC of the same name exists")
		}
	}
	return then
}

// VolumeIsAnothers reports whether the volume that the PVC names is bound to another PVC.
func (c Case) VolumeIsAnothers() bool {
	if c.Volume == nil {
		return false
	}
	ref := c.Volume.Spec.ClaimRef
	if ref == nil {
		return c.Claim.Status.Phase == corev1.ClaimPending
	}
	return ref.Namespace != c.Claim.Namespace || ref.Name != c.Claim.Name || ref.UID != "" && ref.UID != c.Claim.UID
}

func (c Case) volume() string {
	name := c.Claim.Spec.VolumeName
	switch {
	case name == "":
		return "no volume is bound: there is no data"
	case c.VolumeGone:
		return fmt.Sprintf("volume %s does not exist: there is no data", name)
	case c.Volume == nil:
		return fmt.Sprintf("volume %s was not read: what becomes of the data is unknown", name)
	case c.VolumeIsAnothers():
		return fmt.Sprintf("volume %s is not bound to this PVC: nothing happens to it", name)
	case c.Volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain:
		return fmt.Sprintf("volume %s is kept, Released: the data stays", name)
	}
	return fmt.Sprintf("volume %s is deleted, and the data with it", name)
}

// rescue keeps the volume of a terminating PVC.
func (c Case) rescue() []Suggestion {
	if !c.terminating() || c.Volume == nil || c.VolumeIsAnothers() || c.Volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		return nil
	}
	return []Suggestion{{Do: "keep the volume: change its reclaim policy before the PVC is gone", Command: RetainCommand(c.Volume.Name)}}
}

// RetainCommand makes a volume outlive its PVC.
func RetainCommand(volume string) string {
	return fmt.Sprintf(`kubectl patch pv %s -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`, volume)
}
