package model

import (
	"slices"
)

// presence is the state of the workload.
type presence int8

const (
	absent presence = iota
	present
	away // deleted, to be created again
)

// hold is what the PVC bears about its holders.
type hold int8

const (
	noHold hold = iota
	held
	cooling
)

// heldPVC is one version of the PVC, as stored or as a cache shows it.
type heldPVC struct {
	life, version       int8
	exists, terminating bool
	hold                hold
	cooled              bool // the time in the annotation is over
	// release and wish bear the life that they name, or none.
	release, wish int8
}

// holdWrite is a write of the operator on its way to the API server.
type holdWrite struct {
	under bool
	onto  heldPVC
	hold  hold
	// next: the PVC is deleted after this write. deletes: by this one.
	next, deletes bool
	// wished: because a user asked for it. wanted: by a workload that was there then.
	wished, wanted bool
}

// keeper is an operator, with its caches.
type keeper struct {
	pvc  heldPVC
	sees bool // the workload
	out  holdWrite
	// late was sent by a process that has crashed: it may still arrive.
	late holdWrite
}

// holdState is one moment.
type holdState struct {
	pvc      heldPVC
	workload presence
	// promised: the workload was named on this PVC.
	promised bool
	// wished is the life that a user wants deleted when it is free.
	wished int8
	// refused is the life whose owners are gone, and whose DELETE was refused to the garbage
	// collector.
	refused int8
	// passed is the life whose DELETE a webhook let pass.
	passed        int8
	ours, another keeper

	comings, releases, wishes, crashes, errors, bare int8

	lost bool
}

// waits reports whether the PVC is to go, and no workload wants it.
func (s holdState) waits() bool {
	if !s.pvc.exists || s.workload != absent {
		return false
	}
	return s.pvc.terminating || s.wished == s.pvc.life && s.pvc.wish == s.pvc.life || s.refused == s.pvc.life
}

// inUse reports whether the law protects the PVC. Without owners it is garbage: the workload is
// younger.
func (s holdState) inUse() bool {
	return s.promised && s.workload != absent && s.refused != s.pvc.life
}

// renumbered is the same moment with the known versions counted anew: only whether two versions
// differ matters.
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
	// Refuses: a DELETE of a PVC with a hold is refused, unless it was released.
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
	// Replays: a DELETE that was refused to the garbage collector is sent in its place.
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

// HoldFaults are how often each event may happen.
type HoldFaults struct {
	Comings  int8 // times that the workload is created
	Releases int8
	Wishes   int8 // that the PVC is deleted when it is free
	Crashes  int8
	Errors   int8 // live reads that fail
	Lives    int8 // PVCs of the name, one after another
	Bare     int8 // deletions while no policy is there
	// Another operator runs all the time.
	Another bool
}

// Worlds that can be searched to the end.
var (
	HoldInOrder = HoldFaults{Lives: 1, Comings: 2, Releases: 1, Wishes: 1}
	HoldCrashes = HoldFaults{Lives: 1, Comings: 2, Crashes: 1}
	HoldErrors  = HoldFaults{Lives: 1, Comings: 1, Wishes: 1, Errors: 1, Bare: 1}
	HoldLives   = HoldFaults{Lives: 2, Comings: 1, Releases: 1, Wishes: 1}
	HoldTwo     = HoldFaults{Lives: 1, Comings: 1, Another: true}
)

// SearchHold tries every order of steps, the shortest first.
//
// No DELETE takes a PVC while a workload wants it that is named on it, nor within the grace after
// that workload went, unless this UID was released. The operator deletes only what a user or the
// garbage collector asked for, and nothing that was wanted when it read.
func SearchHold(rules HoldRules, faults HoldFaults) Result {
	w := holdWorld{rules, faults, memo[holdQuestion, holdAnswer]{}}
	s := holdState{pvc: heldPVC{life: 1, exists: true}}
	s.ours.pvc, s.another.pvc = s.pvc, s.pvc
	return searched(machine[holdState]{
		start: s, next: w.next,
		lost:  func(s holdState) bool { return s.lost },
		waits: holdState.waits,
		over:  func(s holdState) bool { return !s.pvc.exists },
	})
}
