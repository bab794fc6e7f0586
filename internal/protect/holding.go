package protect

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/action"
)

// State is what a claim is, to somebody who wants it gone.
type State string

// The states. A DELETE is admitted when Free, or with a release token.
const (
	Free     State = "Free"
	Held     State = "Held"
	Cooling  State = "Cooling"
	Draining State = "Draining"
	Doomed   State = "Doomed"
	// Unknown is said only where not all could be read that may hold the claim.
	Unknown State = "Unknown"
)

const (
	// Grace is how long a hold outlives the last holder: delete and create again.
	Grace = 5 * time.Minute
	// verifyEvery is how often an unchanged hold is written again.
	verifyEvery = time.Hour
)

// HoldView is one claim and who holds it, read after all caches had synced.
type HoldView struct {
	Claim *corev1.PersistentVolumeClaim
	Mode  Mode
	World World
	Now   time.Time
	Grace time.Duration
	// OwnerGone: the claim's controller is gone for certain.
	OwnerGone bool
	// NamespaceEnding: its namespace is being deleted.
	NamespaceEnding bool
}

// HoldVerdict is what shall stand on the claim.
type HoldVerdict struct {
	State   State
	Holders []Holder
	Idle    []Holder
	// Annotations to set, or with an empty value to take away. Empty: leave all.
	Annotations map[string]string
	// Delete the claim, this UID and version: somebody asked for it, and it is free.
	Delete bool
	// Next is when to look again, or zero.
	Next    time.Time
	Because action.Reason
}

// DecideHold tells whether a DELETE of the claim shall be refused from now on.
func DecideHold(v HoldView) HoldVerdict {
	holders, idle := v.World.Holders(v.Claim)
	d := HoldVerdict{Holders: holders, Idle: idle}
	switch {
	case v.Claim.DeletionTimestamp != nil:
		d.State, d.Annotations = v.draining(holders), v.without()
	case v.Mode < Hold:
		v.unheld(&d)
	case len(holders) > 0:
		v.held(&d)
	default:
		v.released(&d)
	}
	return d
}

// draining is past holding: its finalizers decide now. Words that still stand
// would keep them from going, for a workload that can never use the claim again.
func (v HoldView) draining(holders []Holder) State {
	for _, h := range holders {
		if h.Reason == DesiredState {
			return Doomed
		}
	}
	return Draining
}

// unheld is a claim whose mode asks for no hold. One that stands is taken away.
func (v HoldView) unheld(d *HoldVerdict) {
	d.State = Free
	if len(d.Holders) > 0 {
		d.State = Held
	}
	d.Annotations = v.without()
	if v.Mode == Observe {
		v.observed(d)
	}
	d.Delete = len(d.Holders) == 0 && v.asked()
	d.Because = action.Reason{Code: "NoHold", Sentence: "mode " + v.Mode.String() + " refuses no deletion"}
}

// observed are the holders in words that warn who deletes the claim, and refuse
// nothing.
func (v HoldView) observed(d *HoldVerdict) {
	delete(d.Annotations, ObservedAnnotation)
	names := namedHolders(d.Holders)
	if v.Claim.Annotations[ObservedAnnotation] != names {
		d.Annotations[ObservedAnnotation] = names
	}
}

func (v HoldView) held(d *HoldVerdict) {
	d.State = Held
	names, sum := namedHolders(d.Holders), digest(d.Holders)
	d.Because = action.Reason{Code: "InUse", Sentence: "in use by " + names}
	verified, err := time.Parse(time.RFC3339, v.Claim.Annotations[VerifiedAnnotation])
	same := v.Claim.Annotations[HoldersAnnotation] == names && v.Claim.Annotations[DigestAnnotation] == sum
	if same && err == nil && v.Now.Before(verified.Add(verifyEvery)) && !verified.After(v.Now) {
		d.Next = verified.Add(verifyEvery)
		return
	}
	d.Annotations = v.words(Words{Names: names}, sum)
	d.Next = v.Now.Add(verifyEvery)
}

func (v HoldView) words(w Words, sum string) map[string]string {
	words := v.without()
	words[HoldersAnnotation] = w.String()
	words[DigestAnnotation] = sum
	words[VerifiedAnnotation] = v.Now.UTC().Format(time.RFC3339)
	return words
}

// released is a claim that nobody holds. A hold outlives its holders for a while:
// what deletes and creates again is still the same workload to its data.
func (v HoldView) released(d *HoldVerdict) {
	value := v.Claim.Annotations[HoldersAnnotation]
	words := ParseWords(value)
	switch {
	case value == "", value == Unverified, v.atOnce():
	case words.Until.IsZero():
		until := v.Now.Add(v.Grace).Truncate(time.Second).Add(time.Second)
		d.State, d.Next = Cooling, until
		d.Annotations = v.words(Words{Names: words.Names, Until: until}, v.Claim.Annotations[DigestAnnotation])
		d.Because = action.Reason{Code: "Cooling", Sentence: "the last holder is gone: " + words.Names}
		return
	case v.Now.Before(words.Until):
		d.State, d.Next = Cooling, words.Until
		return
	}
	d.State = Free
	d.Annotations = v.without()
	d.Delete = v.asked() || value != "" && (v.OwnerGone || v.NamespaceEnding)
	d.Because = action.Reason{Code: "Free", Sentence: "nobody holds the claim"}
}

// atOnce tells whether there is nothing to wait for: scaled down on purpose, with
// the word that what is left over is to be deleted.
func (v HoldView) atOnce() bool {
	if v.Grace <= 0 || v.NamespaceEnding {
		return true
	}
	for _, c := range v.World.Desire.of(v.Claim.Name) {
		if c.want.DeleteWhenScaled && c.out != "" && !c.want.Ending {
			return true
		}
	}
	return false
}

// asked tells whether somebody asked for this very claim to be deleted when free.
func (v HoldView) asked() bool {
	uid := string(v.Claim.UID)
	return uid != "" && v.Claim.Annotations[IntentAnnotation] == uid
}

// without takes away what stands, if anything does.
func (v HoldView) without() map[string]string {
	gone := map[string]string{}
	for _, key := range []string{HoldersAnnotation, ObservedAnnotation, DigestAnnotation, VerifiedAnnotation} {
		if _, ok := v.Claim.Annotations[key]; ok {
			gone[key] = ""
		}
	}
	return gone
}

// Released tells whether a claim bears a release token for its very incarnation.
func Released(claim *corev1.PersistentVolumeClaim) bool {
	return claim.UID != "" && claim.Annotations[ReleaseAnnotation] == string(claim.UID)
}
