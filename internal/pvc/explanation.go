package pvc

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Case is what an explanation is made from. A nil field was not read.
type Case struct {
	Claim *corev1.PersistentVolumeClaim
	Mode  Mode
	World World
	// Pods by UID, for what keeps a pod from ending.
	Pods map[types.UID]*corev1.Pod
	// Nodes by name; a node that does not exist is nil.
	Nodes  map[string]*corev1.Node
	Volume *corev1.PersistentVolume
	// VolumeGone reports that the PersistentVolume does not exist.
	VolumeGone bool
	// NamespaceEnding reports that the namespace is being deleted.
	NamespaceEnding bool
	// Unguarded reports that the API server accepted a DELETE although the PVC is held.
	Unguarded bool
	Unread    []Unread
	Now       time.Time
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

// Suggestion is one step to take.
type Suggestion struct {
	Do string `json:"do"`
	// Command takes the step, if one command can.
	Command string `json:"command,omitempty"`
	// Frees are the holders that the step ends.
	Frees []string `json:"frees,omitempty"`
}

// Why explains a PVC by the decision that the operator takes from the same objects.
func Why(c Case) Explanation {
	verdict := DecideHold(HoldView{
		Claim: c.Claim, Mode: c.Mode, World: c.World, Now: c.Now, Grace: Grace, NamespaceEnding: c.NamespaceEnding, Live: true,
	})
	for i := range verdict.Idle {
		verdict.Idle[i].Released = "" // an idle workload holds nothing
	}
	holders := slices.Concat(verdict.Holders, c.stated(verdict.Holders))
	e := Explanation{
		Claim: c.Claim.Namespace + "/" + c.Claim.Name, UID: c.Claim.UID, Mode: c.Mode.String(), Idle: verdict.Idle,
		State: c.state(verdict, holders), Finalizers: c.finalizers(), Refused: c.refuses(), Unread: c.Unread,
	}
	if e.Refused || c.annotationsKeepFinalizers() {
		e.Release = ReleaseCommand(c.Claim)
	}
	for _, h := range holders {
		e.Holders = append(e.Holders, c.explained(h))
	}
	c.times(&e)
	e.Actions, e.Delete, e.Rescue = c.actions(e.Holders), c.deletion(e), c.rescue()
	e.Then, e.Notes, e.Summary = c.then(e), c.notes(e), c.summary(e)
	return e
}

func (c Case) terminating() bool { return c.Claim.DeletionTimestamp != nil }

// state is the verdict's, unless the annotation refuses more than the verdict would, or
// something could not be read.
func (c Case) state(verdict HoldVerdict, holders []Holder) State {
	annotation := c.Claim.Annotations[HoldersAnnotation]
	switch {
	case c.terminating():
		return verdict.State
	case len(Refusing(holders)) > 0:
		return Held
	case !ParseWords(annotation).Until.IsZero():
		return Cooling
	case annotation != "":
		return Held
	case c.blind():
		return Unknown
	}
	return Free
}

// blind reports whether a holder may be among what could not be read.
func (c Case) blind() bool {
	for _, u := range c.Unread {
		if u.MayHold && (!c.terminating() || u.What == UnreadPods) {
			return true
		}
	}
	return false
}

// refuses is the policy's answer to a DELETE. The policy reads the PVC alone.
func (c Case) refuses() bool { return !c.terminating() && c.guarded() }

// annotationsKeepFinalizers reports whether the policy refuses to remove the finalizers of
// a terminating PVC, because it still bears the annotations of a hold.
func (c Case) annotationsKeepFinalizers() bool { return c.terminating() && c.guarded() }

func (c Case) guarded() bool {
	return c.Claim.Annotations[HoldersAnnotation] != "" && !c.Unguarded && !Released(c.Claim)
}

func (c Case) times(e *Explanation) {
	if verified, err := time.Parse(time.RFC3339, c.Claim.Annotations[VerifiedAnnotation]); err == nil {
		e.VerifiedAt = &verified
	}
	switch {
	case c.terminating():
		e.Since = moment(c.Claim.DeletionTimestamp.Time)
	case e.State == Cooling:
		e.Since, e.Until = e.VerifiedAt, moment(ParseWords(c.Claim.Annotations[HoldersAnnotation]).Until)
	default:
		for _, h := range e.Holders {
			if h.Since != nil && (e.Since == nil || h.Since.Before(*e.Since)) {
				e.Since = h.Since
			}
		}
		if born := c.Claim.CreationTimestamp.Time; e.Since != nil && e.Since.Before(born) {
			e.Since = &born
		}
	}
}

// ReleaseCommand lets a held PVC be deleted.
func ReleaseCommand(claim *corev1.PersistentVolumeClaim) string {
	return "kubectl lockstep release pvc/" + claim.Name + " -n " + claim.Namespace
}
