package model

import "slices"

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
