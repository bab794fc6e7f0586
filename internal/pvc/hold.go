package pvc

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/action"
)

// State is what a PVC is to a user who wants to delete it.
type State string

// The states. A DELETE is admitted when Free, or with a release token.
const (
	Free     State = "Free"
	Held     State = "Held"
	Cooling  State = "Cooling"
	Draining State = "Draining"
	Doomed   State = "Doomed"
	// Unknown is used only where some objects that may hold the PVC could not be read.
	Unknown State = "Unknown"
)

const (
	// Grace is how long a hold outlives the last holder: delete and create again.
	Grace = 5 * time.Minute
	// verifyEvery is how often an unchanged hold is written again, at the least: each PVC has a pace of its own, up to
	// verifyApart faster, so that PVCs held together are not all written together.
	verifyEvery = time.Hour
	verifyApart = 15 * time.Minute
	// renameAfter is how long a hold keeps its names while holders come and go: it refuses a DELETE whatever they are.
	renameAfter = 10 * time.Second
)

// HoldView is one PVC and its holders.
type HoldView struct {
	Claim *corev1.PersistentVolumeClaim
	Mode  Mode
	World World
	Now   time.Time
	Grace time.Duration
	// NamespaceEnding reports whether the namespace is being deleted.
	NamespaceEnding bool
	// NamespaceReleased reports whether the namespace bears a release token.
	NamespaceReleased bool
	// Live reports whether the world and the namespace were read from the API server
	// after the PVC was seen. Only then may a hold end.
	Live bool
}

// HoldVerdict is the annotations that the PVC shall bear.
type HoldVerdict struct {
	State   State
	Holders []Holder
	Idle    []Holder
	// Annotations to set, or with an empty value to remove. Empty: no change.
	Annotations map[string]string
	// Delete is why the PVC is to be deleted, this UID and resourceVersion, or nil.
	Delete *action.Reason
	// NeedsLive: the caches show that the hold may end. Decide again by a live read.
	NeedsLive bool
	// Next is when to decide again, or zero.
	Next    time.Time
	Because action.Reason
}

// DecideHold decides whether a DELETE of the PVC is refused from now on. A cache may add
// or refresh a hold; only a live read may end one.
func DecideHold(v HoldView) HoldVerdict {
	d := v.judge()
	if v.Live || !v.takesAway(d) {
		return d
	}
	d.Annotations, d.Delete, d.Next, d.NeedsLive = nil, nil, time.Time{}, true
	if v.Claim.Annotations[HoldersAnnotation] != "" {
		d.State = Held
	}
	return d
}

// takesAway reports whether a verdict gives up anything that protects a living PVC.
func (v HoldView) takesAway(d HoldVerdict) bool {
	if v.Claim.DeletionTimestamp != nil || v.Mode >= Hold && d.State == Held {
		return false
	}
	_, holders := d.Annotations[HoldersAnnotation]
	observed, changes := d.Annotations[ObservedAnnotation]
	return d.Delete != nil || holders || v.Mode != Observe && changes && observed == ""
}

func (v HoldView) judge() HoldVerdict {
	without := removal(v.Claim.Annotations, HoldersAnnotation, ObservedAnnotation, DigestAnnotation, VerifiedAnnotation)
	d := HoldVerdict{State: Free, Annotations: without}
	d.Holders, d.Idle = v.World.Holders(v.Claim)
	switch {
	case v.Claim.DeletionTimestamp != nil:
		// Its finalizers decide: annotations would keep them for a workload that can never use the PVC again.
		if d.State = Draining; len(wanting(d.Holders)) > 0 {
			d.State = Doomed
		}
		d.Because = action.Reason{Code: "Draining", Sentence: "it is being deleted, and its finalizers decide"}
	case v.Mode < Hold:
		v.unheld(&d)
	case v.NamespaceEnding && v.NamespaceReleased: // its pods still hold it, by its finalizers
		d.Because = action.Reason{Code: "NamespaceReleased", Sentence: "its namespace is being deleted, and all PVCs in it were released"}
		d.Delete = &d.Because
	case len(Refusing(d.Holders)) > 0:
		v.held(&d)
	default:
		v.released(&d)
	}
	return d
}

// wanting are the names of workloads that want a PVC.
func wanting(holders []Holder) (names []string) {
	for _, h := range holders {
		if h.Reason == DesiredState {
			names = append(names, h.Name)
		}
	}
	return names
}

// unheld removes the hold of a PVC whose mode asks for none.
func (v HoldView) unheld(d *HoldVerdict) {
	if len(Refusing(d.Holders)) > 0 {
		d.State = Held
	}
	if v.Mode == Observe {
		v.observed(d, cmp.Or(namedHolders(told(d.Holders)), v.idling(d)))
	}
	if v.Mode >= Barrier {
		d.Delete = v.asked(d)
	}
	d.Because = action.Reason{Code: "NoHold", Sentence: "mode " + v.Mode.String() + " refuses no deletion"}
}

// observed sets the names that warn of a DELETE and refuse nothing.
func (v HoldView) observed(d *HoldVerdict, names string) {
	delete(d.Annotations, ObservedAnnotation)
	if v.Claim.Annotations[ObservedAnnotation] != names {
		d.Annotations[ObservedAnnotation] = names
	}
}

// idling names idle workloads that would use a free PVC again. A finished workload would
// not, nor one that has its PVCs deleted when it is scaled down.
func (v HoldView) idling(d *HoldVerdict) string {
	if v.World.Idle == v1alpha1.IdleHold || v.World.Idle == v1alpha1.IdleFree {
		return ""
	}
	var idle []Holder
	for _, h := range d.Idle {
		if !h.Finished() && !h.discards {
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
	if d.Next = v.standsUntil(names, sum); v.Now.Before(d.Next) {
		d.Annotations = nil
		return
	}
	v.annotate(d, HoldersValue{Names: names}, sum)
	d.Next = v.Now.Add(v.verifyAfter())
}

// standsUntil is how long the annotations of a held PVC need no change.
func (v HoldView) standsUntil(names, sum string) time.Time {
	stands := v.Claim.Annotations[HoldersAnnotation]
	verified, err := time.Parse(time.RFC3339, v.Claim.Annotations[VerifiedAnnotation])
	switch {
	case err != nil || verified.After(v.Now), stands == "", stands == Unverified, !ParseHolders(stands).Until.IsZero():
		return time.Time{}
	case stands == names && v.Claim.Annotations[DigestAnnotation] == sum:
		return verified.Add(v.verifyAfter())
	}
	return verified.Add(renameAfter)
}

// verifyAfter is the pace of the PVC, the same for its UID.
func (v HoldView) verifyAfter() time.Duration {
	sum := sha256.Sum256([]byte(v.Claim.UID))
	return (verifyEvery - verifyApart*time.Duration(sum[0])/256).Truncate(time.Second)
}

func (v HoldView) annotate(d *HoldVerdict, w HoldersValue, sum string) {
	d.Annotations[HoldersAnnotation] = w.String()
	d.Annotations[DigestAnnotation] = sum
	d.Annotations[VerifiedAnnotation] = v.Now.UTC().Format(time.RFC3339)
}

// released is a PVC without holders. A hold outlives its holders for a while: a workload
// that is deleted and created again uses the same data.
func (v HoldView) released(d *HoldVerdict) {
	value := v.Claim.Annotations[HoldersAnnotation]
	stands, latest := ParseHolders(value), v.Now.Add(v.Grace).Truncate(time.Second).Add(time.Second)
	switch {
	case value == "", value == Unverified, v.atOnce(d):
	case stands.Until.IsZero(), stands.Until.After(latest): // the latter by another clock, or a longer grace
		d.State, d.Next = Cooling, latest
		d.Because = action.Reason{Code: "Cooling", Sentence: "the last holder is gone: " + stands.Names}
		v.annotate(d, HoldersValue{Names: stands.Names, Until: latest}, v.Claim.Annotations[DigestAnnotation])
		return
	case v.Now.Before(stands.Until):
		d.State, d.Next, d.Annotations = Cooling, stands.Until, nil
		return
	}
	v.observed(d, v.idling(d))
	if d.Delete = v.asked(d); d.Delete == nil {
		d.Delete = v.inTheirPlace()
	}
	d.Because = action.Reason{Code: "Free", Sentence: "nothing holds the PVC"}
}

// atOnce reports whether the hold ends without grace: the owners of the PVC or its
// namespace are gone, or its workload was scaled down and deletes what is left over.
func (v HoldView) atOnce(d *HoldVerdict) bool {
	return v.Grace <= 0 || v.NamespaceEnding || v.World.OwnersGone || slices.ContainsFunc(d.Idle, func(h Holder) bool { return h.discards })
}

// asked is the deletion that IntentAnnotation asks for. A pod that was never bound
// refuses no DELETE, but the deletion waits for it.
func (v HoldView) asked(d *HoldVerdict) *action.Reason {
	if len(d.Holders) > 0 || !hasUID(v.Claim, IntentAnnotation) {
		return nil
	}
	return &action.Reason{Code: "DeleteWhenFree", Sentence: "it was to be deleted when nothing holds it, and nothing does"}
}

// inTheirPlace is the deletion that a hold refused to the garbage collector or to the
// namespace controller, which retry after up to 1000 s.
func (v HoldView) inTheirPlace() *action.Reason {
	switch {
	case v.NamespaceEnding:
		return &action.Reason{Code: "NamespaceEnding", Sentence: "its namespace is being deleted, and nothing holds it any more"}
	case v.World.OwnersGone:
		return &action.Reason{Code: "OwnerGone", Sentence: OwnersOf(v.Claim) + ", which owned it, is gone or waits for it, and nothing holds it any more"}
	}
	return nil
}

// removal removes those of some annotations that are there.
func removal(have map[string]string, keys ...string) map[string]string {
	gone := map[string]string{}
	for _, key := range keys {
		if _, ok := have[key]; ok {
			gone[key] = ""
		}
	}
	return gone
}

// HoldersValue is the value of HoldersAnnotation.
//
//	"LeaderWorkerSet/llama, Pod/llama-0, +3"                     held
//	"cooling until 2026-11-21T22:05:00Z: LeaderWorkerSet/llama"  the last holder is gone
//	"unverified"                                                 no operator has read it yet
type HoldersValue struct {
	// Names of the holders; of the last ones while cooling.
	Names string
	// Until is when a cooling PVC is free, or zero.
	Until time.Time
}

const (
	cooling = "cooling until "
	// maxNames keeps the value below 1 KiB, while it cools as well.
	maxNames = 1<<10 - len(cooling+"2006-01-02T15:04:05Z"+": ")
)

// ParseHolders reads HoldersAnnotation. An unreadable value counts as names: it holds until it is written again.
func ParseHolders(value string) HoldersValue {
	rest, ok := strings.CutPrefix(value, cooling)
	at, names, separated := strings.Cut(rest, ": ")
	until, err := time.Parse(time.RFC3339, at)
	if !ok || !separated || err != nil {
		return HoldersValue{Names: value}
	}
	return HoldersValue{Names: names, Until: until}
}

func (w HoldersValue) String() string {
	if w.Until.IsZero() {
		return w.Names
	}
	return cooling + w.Until.UTC().Format(time.RFC3339) + ": " + w.Names
}

// namedHolders are the names of at most maxNamed holders, in less than 1 KiB. Workloads come before their pods.
func namedHolders(holders []Holder) string {
	var all []string
	for _, pods := range []bool{false, true} {
		for _, h := range holders {
			if strings.HasPrefix(h.Name, "Pod/") == pods && !slices.Contains(all, h.Name) {
				all = append(all, h.Name)
			}
		}
	}
	shown := maxNamed
	for len(first(all, shown)) >= maxNames {
		shown--
	}
	return first(all, shown)
}

// digest differs for two sets of holders by their UIDs, whatever is shown of them.
func digest(holders []Holder) string {
	sum := sha256.New()
	for _, h := range holders {
		sum.Write([]byte(h.Name + "\x00" + string(h.UID) + "\x00" + h.Reason + "\n"))
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}
