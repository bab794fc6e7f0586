package model

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// presence is the state of the workload.
type presence int8

const (
	absent presence = iota
	present
	away // deleted, and created again later
)

// hold is the state of the annotation of holders.
type hold int8

const (
	noHold hold = iota
	held
	cooling
)

// heldPVC is one version of the PVC, as stored or as a cache shows it.
type heldPVC struct {
	uid, version        int8
	exists, terminating bool
	hold                hold
	cooled              bool // the time in the annotation is over
	// release and wish are the UIDs in the annotations of that name, or zero.
	release, wish int8
}

// holdWrite is a write of the operator that has not reached the API server yet.
type holdWrite struct {
	under bool
	onto  heldPVC
	hold  hold
	// next: a deletion of the PVC follows this write. deletes: this write is that deletion.
	next, deletes bool
	// wished: a user asked for the deletion. wanted: a workload wanted the PVC at the decision.
	wished, wanted bool
}

// keeper is an operator with its caches.
type keeper struct {
	pvc  heldPVC
	sees bool // the workload
	out  holdWrite
	// late was sent by a process that has crashed: it may still arrive.
	late holdWrite
}

// holdState is the state of the cluster at one moment.
type holdState struct {
	pvc      heldPVC
	workload presence
	// promised: the workload was named on this PVC.
	promised bool
	// wished is the UID of the PVC that a user wants deleted when it is free.
	wished int8
	// refused is the UID of the PVC whose owners are gone, and whose DELETE by the garbage
	// collector was refused.
	refused int8
	// passed is the UID of the PVC whose DELETE a webhook allowed.
	passed        int8
	ours, another keeper

	comings, releases, wishes, crashes, errors, bare int8

	lost bool
}

// waits reports whether the PVC must be deleted in the end: no workload wants it, and a user or the
// garbage collector asked for the deletion.
func (s holdState) waits() bool {
	if !s.pvc.exists || s.workload != absent {
		return false
	}
	return s.pvc.terminating || s.wished == s.pvc.uid && s.pvc.wish == s.pvc.uid || s.refused == s.pvc.uid
}

// inUse reports whether the law protects the PVC. A PVC whose owners are gone is garbage, and its
// workload is younger.
func (s holdState) inUse() bool {
	return s.promised && s.workload != absent && s.refused != s.pvc.uid
}

// renumbered returns the state with versions renumbered from zero: only differences between
// versions matter.
func (s holdState) renumbered() holdState {
	var known []int8
	var at []*int8
	for _, c := range []*heldPVC{
		&s.pvc, &s.ours.pvc, &s.ours.out.onto, &s.ours.late.onto, &s.another.pvc, &s.another.out.onto, &s.another.late.onto,
	} {
		if c.exists {
			known, at = append(known, c.version), append(at, &c.version)
		}
	}
	slices.Sort(known)
	known = slices.Compact(known)
	for _, version := range at {
		*version = int8(slices.Index(known, *version))
	}
	return s
}

// HoldRules are the switches of the part that refuses a DELETE: annotations on the PVC, policies
// that read them, and an operator that keeps them true. The zero value holds nothing.
type HoldRules struct {
	// Refuses: a DELETE of a PVC with a hold is refused, unless the PVC was released.
	Refuses bool
	// Atomic: the verdict reads the PVC as it is stored; otherwise as a webhook read it.
	Atomic bool
	// Guards: only the operator removes a hold.
	Guards bool
	// NamesUID: a release, and a wish to delete the PVC, count for the UID that they name.
	NamesUID bool
	// Grace: a hold outlives the last holder.
	Grace bool
	// ErrorsHold: while workloads cannot be read, no hold ends.
	ErrorsHold bool
	// Preconditions: holds are written, and PVCs deleted, onto the version that was judged.
	Preconditions bool
	// ReadsLive: workloads are read live before a hold ends or the PVC is deleted.
	ReadsLive bool
	// Yields: a terminating PVC loses its hold, which keeps its finalizers.
	Yields bool
	// Replays: the operator sends the DELETE that was refused to the garbage collector.
	Replays bool
	// ReplaysLater: also by an operator that finds the hold removed already.
	ReplaysLater bool
}

// Holding is mode hold.
func Holding() HoldRules {
	return HoldRules{
		Refuses: true, Atomic: true, Guards: true, NamesUID: true, Grace: true, ErrorsHold: true,
		Preconditions: true, ReadsLive: true, Yields: true, Replays: true, ReplaysLater: true,
	}
}

// HoldFaults are the number of times that each event may happen.
type HoldFaults struct {
	Comings  int8 // times that the workload is created
	Releases int8
	Wishes   int8 // that the PVC is deleted when it is free
	Crashes  int8
	Errors   int8 // live reads that fail
	PVCs     int8 // PVCs of the name, one after another
	Bare     int8 // deletions while no policy is there
	// Another operator runs all the time.
	Another bool
}

// Worlds that can be searched to the end.
var (
	HoldInOrder = HoldFaults{PVCs: 1, Comings: 2, Releases: 1, Wishes: 1}
	HoldCrashes = HoldFaults{PVCs: 1, Comings: 2, Crashes: 1}
	HoldErrors  = HoldFaults{PVCs: 1, Comings: 1, Wishes: 1, Errors: 1, Bare: 1}
	HoldAgain   = HoldFaults{PVCs: 2, Comings: 1, Releases: 1, Wishes: 1}
	HoldTwo     = HoldFaults{PVCs: 1, Comings: 1, Another: true}
)

// SearchHold tries every order of steps, the shortest first.
//
// No DELETE removes a PVC while a workload in its annotation wants it, nor within the grace after
// that workload is gone, unless this UID was released. The operator deletes only PVCs for which a
// user or the garbage collector asked, and none that a workload wanted at the read.
func SearchHold(rules HoldRules, faults HoldFaults) Result {
	w := holdWorld{rules, faults, remembered(holdQuestion.decide)}
	s := holdState{pvc: heldPVC{uid: 1, exists: true}}
	s.ours.pvc, s.another.pvc = s.pvc, s.pvc
	return searched(machine[holdState]{
		start: s, next: w.next, same: holdState.renumbered,
		lost:  func(s holdState) bool { return s.lost },
		waits: holdState.waits,
		over:  func(s holdState) bool { return !s.pvc.exists },
	})
}

// holdQuestion is the input of a decision.
type holdQuestion struct {
	hold                hold
	terminating, cooled bool
	wished              bool // for this UID
	wanted              bool
	ownersGone          bool
	live, grace         bool
}

// holdAnswer is what package pvc decides.
type holdAnswer struct {
	hold               hold // after the write
	deletes, needsLive bool
}

var now = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

func (q holdQuestion) decide() holdAnswer {
	const web = "StatefulSet/web"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "data-web-0", UID: "c1", ResourceVersion: "7", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
		Annotations: map[string]string{pvc.VerifiedAnnotation: now.Format(time.RFC3339)},
	}}
	if q.terminating {
		claim.DeletionTimestamp = &metav1.Time{Time: now}
	}
	if q.wished {
		claim.Annotations[pvc.IntentAnnotation] = "c1"
	}
	until := now.Add(time.Minute)
	if q.cooled {
		until = now
	}
	value := map[hold]string{held: web, cooling: pvc.HoldersValue{Names: web, Until: until}.String()}[q.hold]
	if value != "" {
		claim.Annotations[pvc.HoldersAnnotation] = value
	}
	var wants []workloads.Want
	if q.wanted {
		wants = append(wants, workloads.Want{
			Workload: identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "web", UID: "w"},
			Since:    now,
			Series:   []workloads.Series{{Prefix: "data-web", Spans: []workloads.Span{{From: 0, To: 1}}}},
		})
	}
	view := pvc.HoldView{Claim: claim, Mode: pvc.Hold, Now: now, Live: q.live, World: pvc.World{
		Pods: pvc.NewIndex(), Desire: workloads.NewDesire("ns", wants), OwnersGone: q.ownersGone,
	}}
	if q.grace {
		view.Grace = time.Minute
	}
	d := pvc.DecideHold(view)
	if written, writes := d.Annotations[pvc.HoldersAnnotation]; writes {
		value = written
	}
	a := holdAnswer{deletes: d.Delete != nil, needsLive: d.NeedsLive}
	switch {
	case value == "":
	case pvc.ParseHolders(value).Until.IsZero():
		a.hold = held
	default:
		a.hold = cooling
	}
	return a
}
