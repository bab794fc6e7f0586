package interleave

import "fmt"

// actor is who takes a step.
type actor int8

const (
	oursArrives actor = iota
	builtInArrives
	schedulersArrive
	lateArrives // of whoever has crashed
	oursHearsOfClaims
	oursHearsOfPods
	builtInHearsOfClaims
	builtInHearsOfPods
	schedulersHear
	schedulers
	deleters
	creators
	writers // of what is not ours
	kubelets
	misfortune
	actors // how many
)

// step is one thing that may happen next.
type step struct {
	by   actor
	says string
	do   func()
}

// steps are all that may happen next, in an order that is always the same.
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
