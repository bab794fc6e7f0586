package interleave

import "fmt"

// actor is the party that takes a step.
type actor int8

const (
	oursArrives actor = iota
	builtInArrives
	schedulersArrive
	lateArrives // of a sender that has crashed
	oursHearsOfClaims
	oursHearsOfPods
	builtInHearsOfClaims
	builtInHearsOfPods
	schedulersHear
	schedulers
	deleters
	creators
	writers // of other clients
	kubelets
	misfortune
	actors // their number
)

// step is one thing that may happen next.
type step struct {
	by   actor
	says string
	do   func()
}

// steps returns all steps that may happen next, in a stable order.
func (w *world) steps() []step {
	var all []step
	add := func(by actor, do func(), says string, args ...any) {
		all = append(all, step{by, fmt.Sprintf(says, args...), do})
	}
	w.underWay(add)
	w.informers(add)
	w.nodes(add)
	w.schedule(add)
	w.users(add)
	w.misfortunes(add)
	return all
}

type adder func(by actor, do func(), says string, args ...any)
