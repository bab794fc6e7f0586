package model

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
