package pvc

import (
	"cmp"
	"crypto/sha256"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
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
	// verifyEvery is how often an unchanged hold is written again, at the least: each
	// claim has a pace of its own, up to verifyApart faster, so that those held
	// together are not all written together.
	verifyEvery = time.Hour
	verifyApart = 15 * time.Minute
	// renameAfter is how long a hold that stands keeps its names while holders come
	// and go: it refuses a DELETE whatever they are.
	renameAfter = 10 * time.Second
	// lookAgainAfter is when a claim is looked at again that nothing could be said of.
	lookAgainAfter = 10 * time.Second
)

// HoldView is one claim and who holds it, read after all caches had synced.
type HoldView struct {
	Claim *corev1.PersistentVolumeClaim
	Mode  Mode
	World World
	Now   time.Time
	Grace time.Duration
	// Unread says which holders could not be looked for, or is empty. What was not
	// read may hold the claim: no hold ends.
	Unread string
	// WaitingOwner is the claim's controller, if it is on its way out and waits for the
	// claim to go.
	WaitingOwner *identity.Ref
	// NamespaceEnding: its namespace is being deleted.
	NamespaceEnding bool
	// NamespaceReleased: who may has given up all claims of the namespace.
	NamespaceReleased bool
	// NamespaceLive: the mode and these two are what the namespace itself says, read live
	// after the claim was seen. Without that nothing is given up by them.
	NamespaceLive bool
}

// HoldVerdict is what shall stand on the claim.
type HoldVerdict struct {
	State   State
	Holders []Holder
	Idle    []Holder
	// Annotations to set, or with an empty value to take away. Empty: leave all.
	Annotations map[string]string
	// Delete says why the claim is to be deleted, this UID and version, now that it is
	// free; or is nil.
	Delete *Deletion
	// Look at the cluster itself first: caches may be late, and nobody else looked, or nobody
	// else deletes.
	Look bool
	// Next is when to look again, or zero.
	Next    time.Time
	Because action.Reason
	// AskNamespace: nothing is decided before the namespace was read live.
	AskNamespace bool
}

// Deletion is why a claim that nobody holds is deleted.
type Deletion struct {
	Because action.Reason
	// OwnerGone must be gone still, and for certain, or is nil.
	OwnerGone *identity.Ref
	// Wished: somebody asked for it, and nobody but the operator would do it.
	Wished bool
}

// DecideHold tells whether a DELETE of the claim shall be refused from now on.
func DecideHold(v HoldView) HoldVerdict {
	d := v.judge()
	if !v.NamespaceLive && v.givesUp(d) {
		return v.asks(d)
	}
	return d
}

func (v HoldView) judge() HoldVerdict {
	holders, idle := v.World.Holders(v.Claim)
	d := HoldVerdict{Holders: holders, Idle: idle}
	switch {
	case v.Claim.DeletionTimestamp != nil:
		d.State, d.Annotations = v.draining(holders), v.without()
		d.Because = action.Reason{Code: "Draining", Sentence: "it is being deleted, and its finalizers decide"}
	case v.Mode < Hold:
		v.unheld(&d)
	case v.NamespaceEnding && v.NamespaceReleased:
		v.givenUp(&d)
	case len(Refusing(holders)) > 0:
		v.held(&d)
	case v.Unread != "":
		v.unknown(&d)
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
	if len(Refusing(d.Holders)) > 0 {
		d.State = Held
	}
	d.Annotations = v.without()
	if v.Mode == Observe {
		v.observed(d, v.asFarAsRead(d, cmp.Or(namedHolders(told(d.Holders)), v.idling(d))))
	}
	if v.Mode >= Barrier {
		d.Delete = v.politely(d)
		v.awaitsReading(d)
	}
	d.Because = action.Reason{Code: "NoHold", Sentence: "mode " + v.Mode.String() + " refuses no deletion"}
}

// observed has names stand where they warn who deletes the claim, and refuse nothing.
func (v HoldView) observed(d *HoldVerdict, names string) {
	delete(d.Annotations, ObservedAnnotation)
	if v.Claim.Annotations[ObservedAnnotation] != names {
		d.Annotations[ObservedAnnotation] = names
	}
}

// idling are those that would use a free claim again, if that is worth a warning. What
// has finished would not, nor what has its claims deleted when it is scaled down.
func (v HoldView) idling(d *HoldVerdict) string {
	if v.World.Idle != IdleWarns {
		return ""
	}
	var idle []Holder
	for _, h := range d.Idle {
		if h.Phase != finished && !h.discards {
			h.Name += " (" + h.Phase + ")"
			idle = append(idle, h)
		}
	}
	return namedHolders(idle)
}

func (v HoldView) held(d *HoldVerdict) {
	d.State = Held
	holders := told(d.Holders)
	names, sum := namedHolders(holders), digest(holders)
	d.Because = action.Reason{Code: "InUse", Sentence: "in use by " + names}
	if next := v.standsUntil(names, sum); v.Now.Before(next) {
		d.Next = next
		return
	}
	d.Annotations = v.words(Words{Names: names}, sum)
	d.Next = v.Now.Add(v.verifyAfter())
}

// standsUntil is how long what stands on a held claim will do.
func (v HoldView) standsUntil(names, sum string) time.Time {
	stands := v.Claim.Annotations[HoldersAnnotation]
	verified, err := time.Parse(time.RFC3339, v.Claim.Annotations[VerifiedAnnotation])
	switch {
	case err != nil || verified.After(v.Now), stands == "", stands == Unverified, !ParseWords(stands).Until.IsZero():
		return time.Time{}
	case stands == names && v.Claim.Annotations[DigestAnnotation] == sum:
		return verified.Add(v.verifyAfter())
	case v.Unread != "" && v.Now.Before(verified.Add(v.verifyAfter())):
		return v.Now.Add(lookAgainAfter) // other names may only have come by not being read
	}
	return verified.Add(renameAfter)
}

// verifyAfter is the claim's own pace, the same for all its life.
func (v HoldView) verifyAfter() time.Duration {
	sum := sha256.Sum256([]byte(v.Claim.UID))
	return (verifyEvery - verifyApart*time.Duration(sum[0])/256).Truncate(time.Second)
}

// givenUp is a claim of a namespace that goes with all that is in it, by the word
// of somebody who may say so. Its pods still hold it, by its finalizers.
func (v HoldView) givenUp(d *HoldVerdict) {
	d.State, d.Annotations = Free, v.without()
	d.Because = action.Reason{Code: "NamespaceReleased", Sentence: "its namespace is being deleted, and all claims in it were released"}
	d.Delete = &Deletion{Because: d.Because}
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
	words, latest := ParseWords(value), v.Now.Add(v.Grace).Truncate(time.Second).Add(time.Second)
	d.Look = value == Unverified || value != "" && v.World.awaited(v.Claim)
	switch {
	case value == "", value == Unverified, v.atOnce():
	case words.Until.IsZero(), words.Until.After(latest): // the latter by another clock, or a longer grace
		d.State, d.Next = Cooling, latest
		d.Annotations = v.words(Words{Names: words.Names, Until: latest}, v.Claim.Annotations[DigestAnnotation])
		d.Because = action.Reason{Code: "Cooling", Sentence: "the last holder is gone: " + words.Names}
		return
	case v.Now.Before(words.Until):
		d.State, d.Next, d.Look = Cooling, words.Until, false // what stands will do
		return
	}
	d.State = Free
	d.Annotations = v.without()
	v.observed(d, v.idling(d))
	if d.Delete = v.politely(d); d.Delete == nil {
		d.Delete = v.inTheirPlace()
	}
	d.Because = action.Reason{Code: "Free", Sentence: "nobody holds the claim"}
}

// inTheirPlace is the deletion of a claim that others were refused, who would try
// again in their own time: the garbage collector, the namespace controller. Whether
// they were cannot be seen on a claim whose words are off already, by an operator that
// went no further: what they would delete is deleted. The collector deletes nothing that
// has another owner.
func (v HoldView) inTheirPlace() *Deletion {
	if v.NamespaceEnding {
		return &Deletion{Because: action.Reason{Code: "NamespaceEnding", Sentence: "its namespace is being deleted, and nobody holds it any more"}}
	}
	switch {
	case len(v.Claim.OwnerReferences) > 1:
	case v.World.GoneOwner != nil:
		return &Deletion{
			Because:   action.Reason{Code: "OwnerGone", Sentence: v.World.GoneOwner.String() + ", which it belongs to, is gone, and nobody holds it any more"},
			OwnerGone: v.World.GoneOwner,
		}
	case v.WaitingOwner != nil:
		return &Deletion{Because: action.Reason{Code: "OwnerWaits", Sentence: v.WaitingOwner.String() + ", which it belongs to, is being deleted and waits for it, and nobody holds it any more"}}
	}
	return nil
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
