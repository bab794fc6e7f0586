package model

// HoldRules are the switches of the part that refuses a DELETE: words on the claim,
// policies that read them, and an operator that keeps them true. The zero value holds
// nothing.
type HoldRules struct {
	// Refuses: a DELETE of what bears words is refused, unless it was released.
	Refuses bool
	// Atomic: the verdict reads the claim as it is stored; otherwise as a webhook read it.
	Atomic bool
	// GuardsWords: nobody takes words off but the operator.
	GuardsWords bool
	// NamesLife: a release, and a wish to have the claim deleted, count for the life
	// whose UID they name; otherwise for whoever bears them.
	NamesLife bool
	// Grace: words outlive the last holder.
	Grace bool
	// ErrorsHold: while workloads cannot be read, no hold ends.
	ErrorsHold bool
	// Preconditions: words are written, and claims deleted, onto the version judged.
	Preconditions bool
	// LooksLive: before a claim is deleted that somebody wished so, workloads are read
	// in the API server.
	LooksLive bool
	// Yields: words are taken off what is on its way out, for they keep its finalizers.
	Yields bool
	// Replays: what others were refused to delete is deleted for them.
	Replays bool
	// ReplaysLater: and by an operator too that finds the words off already.
	ReplaysLater bool
}

// Holding is mode hold.
func Holding() HoldRules {
	return HoldRules{
		Refuses: true, Atomic: true, GuardsWords: true, NamesLife: true, Grace: true, ErrorsHold: true,
		Preconditions: true, LooksLive: true, Yields: true, Replays: true, ReplaysLater: true,
	}
}

// HoldFaults are how often things may happen that nobody can count on.
type HoldFaults struct {
	Comings  int8 // times that the workload comes
	Releases int8
	Wishes   int8 // that the claim be deleted when it is free
	Crashes  int8
	Errors   int8 // times in which workloads cannot be read
	Lives    int8 // claims of the name, one after another
	Bare     int8 // deletions that no policy sees
	// Another operator runs all the time, and knows nothing of the first.
	Another bool
}

// The worlds: one in which nothing goes wrong but the order of things, and those in which
// something does. All at once are more than can be searched in a moment.
var (
	HoldInOrder = HoldFaults{Lives: 1, Comings: 2, Releases: 1, Wishes: 1}
	HoldCrashes = HoldFaults{Lives: 1, Comings: 2, Crashes: 1}
	HoldErrors  = HoldFaults{Lives: 1, Comings: 1, Wishes: 1, Errors: 1, Bare: 1}
	HoldLives   = HoldFaults{Lives: 2, Comings: 1, Releases: 1, Wishes: 1}
	HoldTwo     = HoldFaults{Lives: 1, Comings: 1, Another: true}
)

// SearchHold tries every order of steps, the shortest first.
//
// Two laws. No DELETE takes a claim while a workload wants it that is named on it, nor
// within the grace after that workload went, unless this very life was released. And the
// operator deletes only what somebody wished gone, and nothing that was wanted
// when it looked. What is asked before the operator has seen a workload is not promised.
func SearchHold(rules HoldRules, faults HoldFaults) Result {
	w := holdWorld{rules, faults}
	return searched(machine[holdState]{
		start: w.start(), next: w.next,
		lost:  func(s holdState) bool { return s.lost },
		waits: holdState.waits,
		over:  func(s holdState) bool { return !s.claim.exists },
	})
}
