package pvc

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Case is everything an explanation may know. What is nil was not read.
type Case struct {
	Claim    *corev1.PersistentVolumeClaim
	Mode     Mode
	Settings Settings
	World    World
	// Pods by UID, for what keeps a pod from leaving.
	Pods map[types.UID]*corev1.Pod
	// Nodes by name; a node that was looked for and is not there is nil.
	Nodes  map[string]*corev1.Node
	Volume *corev1.PersistentVolume
	// VolumeGone: it was looked for, and is not there.
	VolumeGone bool
	// Attached are the nodes that the volume is attached to.
	Attached []string
	// NamespaceEnding: its namespace is being deleted.
	NamespaceEnding bool
	// NamespaceLabels are those of its namespace.
	NamespaceLabels map[string]string
	// Unguarded: the policies that refuse are known not to be there.
	Unguarded bool
	// Unread is what could not be read.
	Unread []Unread
	Now    time.Time
}

// Unread is a kind of object, or one object, that could not be read. What is not
// read is never guessed.
type Unread struct {
	What string `json:"what"`
	Why  string `json:"why"`
	// MayHold: who holds the claim may be among it.
	MayHold bool `json:"mayHold"`
}

// UnreadPods is what is said of pods that could not be read: they alone keep a
// claim that is on its way out.
const UnreadPods = "pods"

// Explanation is why a claim is there still, and what would change that.
type Explanation struct {
	Claim string    `json:"claim"`
	UID   types.UID `json:"uid"`
	State State     `json:"state"`
	// Summary is the state in a sentence.
	Summary string `json:"summary"`
	Mode    string `json:"mode"`
	// Since is when its deletion was asked for; of a living claim, since when what
	// holds it does.
	Since *time.Time `json:"since,omitempty"`
	// Until is when a claim that cools is free.
	Until *time.Time `json:"until,omitempty"`
	// VerifiedAt is when the operator last found the holders to be so.
	VerifiedAt *time.Time `json:"verifiedAt,omitempty"`
	// AskedBy is who asked for the deletion. The object cannot tell.
	AskedBy string `json:"askedBy,omitempty"`
	// Refused is what a DELETE would be, going by what stands on the claim.
	Refused bool `json:"refused"`
	// Release is the command that lets a DELETE through all the same.
	Release    string       `json:"release,omitempty"`
	Finalizers []Finalizer  `json:"finalizers,omitempty"`
	Holders    []Explained  `json:"holders,omitempty"`
	Idle       []Holder     `json:"idle,omitempty"`
	Blockers   []Blocker    `json:"blockers,omitempty"`
	Actions    []Suggestion `json:"actions,omitempty"`
	// Delete is how its deletion is asked for, of a claim that refuses it now.
	Delete []Suggestion `json:"delete,omitempty"`
	// Then is what happens to the data.
	Then []string `json:"then"`
	// Rescue is what to do first, if the data is still wanted.
	Rescue []Suggestion `json:"rescue,omitempty"`
	// Notes are what else a person should know.
	Notes  []string `json:"notes,omitempty"`
	Unread []Unread `json:"unread,omitempty"`
}

// Explained is a holder, and whether it truly keeps the claim.
type Explained struct {
	Holder
	// Since is since when it may hold.
	Since *time.Time `json:"since,omitempty"`
	// Leaving is when it was to be gone, for one that is being deleted.
	Leaving *time.Time `json:"leaving,omitempty"`
	Holds   bool       `json:"holds"`
	Why     string     `json:"why"`
}

// Suggestion is one thing to do.
type Suggestion struct {
	Do string `json:"do"`
	// Command does it, where one command can.
	Command string `json:"command,omitempty"`
	// Frees are the holders that go with it.
	Frees []string `json:"frees,omitempty"`
}

// Why explains a claim.
func Why(c Case) Explanation {
	holders, idle := c.World.Holders(c.Claim)
	holders, idle = c.stated(holders, idle)
	idle = letGo(idle)
	e := Explanation{
		Claim: c.Claim.Namespace + "/" + c.Claim.Name, UID: c.Claim.UID, Mode: c.Mode.String(), Idle: idle,
		State: c.state(holders), Finalizers: c.finalizers(), Refused: c.refuses(), Unread: c.Unread,
	}
	if e.Refused || c.wordsInTheWay() {
		e.Release = ReleaseCommand(c.Claim)
	}
	for _, h := range holders {
		e.Holders = append(e.Holders, c.explained(h))
	}
	c.times(&e)
	e.Blockers = c.blockers(e.Holders)
	e.Actions = c.actions(e.Holders, e.Blockers)
	e.Delete = c.deletion(e)
	e.Then = c.then(holders, idle)
	e.Rescue = c.rescue(e.State)
	e.Notes = c.notes(e)
	e.Summary = c.summary(e)
	return e
}

func (c Case) terminating() bool { return c.Claim.DeletionTimestamp != nil }

func (c Case) state(holders []Holder) State {
	words := c.Claim.Annotations[HoldersAnnotation]
	switch {
	case c.terminating():
		return draining(holders)
	case len(Refusing(holders)) > 0:
		return Held
	case !ParseWords(words).Until.IsZero():
		return Cooling
	case words != "":
		return Held // says the operator, or that nobody has looked yet
	case c.blind():
		return Unknown
	}
	return Free
}

// blind tells whether somebody may hold the claim who could not be read.
func (c Case) blind() bool {
	for _, u := range c.Unread {
		if u.MayHold && (!c.terminating() || u.What == UnreadPods) {
			return true
		}
	}
	return false
}

// refuses is what the policy would say to a DELETE: it reads the claim alone.
func (c Case) refuses() bool {
	return c.Claim.Annotations[HoldersAnnotation] != "" && !c.Unguarded && !c.terminating() && !Released(c.Claim)
}

// wordsInTheWay tells whether words that still stand on a claim on its way out
// keep its finalizers from being taken: the policy that guards them reads words.
func (c Case) wordsInTheWay() bool {
	return c.terminating() && c.Claim.Annotations[HoldersAnnotation] != "" && !c.Unguarded && !Released(c.Claim)
}

func (c Case) times(e *Explanation) {
	if verified, err := time.Parse(time.RFC3339, c.Claim.Annotations[VerifiedAnnotation]); err == nil {
		e.VerifiedAt = &verified
	}
	switch {
	case c.terminating():
		since := c.Claim.DeletionTimestamp.Time
		e.Since, e.AskedBy = &since, "unknown"
	case e.State == Cooling:
		until := ParseWords(c.Claim.Annotations[HoldersAnnotation]).Until
		e.Since, e.Until = e.VerifiedAt, &until
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

// ReleaseCommand is what a person types to delete a held claim all the same.
func ReleaseCommand(claim *corev1.PersistentVolumeClaim) string {
	return "kubectl lockstep release pvc/" + claim.Name + " -n " + claim.Namespace
}
