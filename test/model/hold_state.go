package model

import "slices"

// presence is how a workload stands to the claim.
type presence int8

const (
	absent presence = iota
	present
	// away for a moment, as far as its owner is concerned: deleted, to be made again.
	away
)

// words are what stands on the claim about its holders.
type words int8

const (
	noWords words = iota
	heldWords
	coolingWords
)

// bornClaim is one version of the claim, as stored or as some cache shows it.
type bornClaim struct {
	life, version       int8
	exists, terminating bool
	words               words
	// cooled: the time that stands in the words is over.
	cooled bool
	// release and wish bear the life that they name, or none.
	release, wish int8
}

// keeping is a write of the operator's on its way to the API server.
type keeping struct {
	under bool
	onto  bornClaim
	words words
	// deletes: the claim itself is deleted, next or now.
	next, deletes bool
	// wished: because somebody wished so. wanted: by a workload that was there then.
	wished, wanted bool
}

// keeper is an operator, with its caches.
type keeper struct {
	claim bornClaim
	sees  bool // the workload
	blind bool // workloads cannot be read
	out   keeping
	// late was sent by a predecessor that has crashed: it may still arrive.
	late keeping
}

// holdState is one moment.
type holdState struct {
	claim    bornClaim
	workload presence
	// promised: the workload was named on this life of the claim.
	promised bool
	// wished is the life that somebody wished to be deleted when it is free.
	wished int8
	// refused is the life that its owner's going would have deleted, and was refused:
	// who was refused comes again in its own time, which nobody can count on.
	refused int8
	// passed is the life that a webhook let the DELETE of pass.
	passed        int8
	ours, another keeper

	comings, releases, wishes, crashes, errors, bare int8

	lost bool
}

// waits tells whether a claim is to go, and nobody wants it.
func (s holdState) waits() bool {
	if !s.claim.exists || s.workload != absent {
		return false
	}
	return s.claim.terminating || s.wished == s.claim.life && s.claim.wish == s.claim.life || s.refused == s.claim.life
}

// inUse tells whether the law protects the claim.
func (s holdState) inUse() bool { return s.promised && s.workload != absent }

// renumbered is the same moment with the versions that are still known counted anew:
// nothing goes by a version but whether it is another one.
func (s holdState) renumbered() holdState {
	var known []int8
	var at []*int8
	for _, c := range []*bornClaim{
		&s.claim, &s.ours.claim, &s.ours.out.onto, &s.ours.late.onto, &s.another.claim, &s.another.out.onto, &s.another.late.onto,
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
