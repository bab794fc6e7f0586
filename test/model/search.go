package model

import "slices"

// Result is the result of a search.
type Result struct {
	// States is the number of states visited: all of them, unless there is a Trace.
	States int
	// Trace is the shortest sequence of steps that loses data, or empty.
	Trace []string
	// Pinned is the shortest trace to an unused PVC that can never be deleted, or empty. The search
	// for it runs only if no data is lost.
	Pinned []string
}

// Safe reports whether no order of steps loses data.
func (r Result) Safe() bool { return len(r.Trace) == 0 }

// steps takes the steps from one state.
type steps[S comparable] struct {
	from  S
	found func(says string, then S, maybe bool)
}

// surely is a step that happens in the end if it can.
func (to *steps[S]) surely(can bool, says string, change func(*S)) { to.add(can, says, change, false) }

// maybe is a step that may never happen.
func (to *steps[S]) maybe(can bool, says string, change func(*S)) { to.add(can, says, change, true) }

func (to *steps[S]) add(can bool, says string, change func(*S), maybe bool) {
	if can {
		then := to.from
		change(&then)
		to.found(says, then, maybe)
	}
}

// machine is the input of a search.
type machine[S comparable] struct {
	start S
	next  func(*steps[S])
	// same maps states that do not differ in what matters to one of them.
	same func(S) S
	lost func(S) bool
	// waits reports whether the sure steps must delete the PVC in the end, and over whether it
	// is gone.
	waits, over func(S) bool
}

func searched[S comparable](m machine[S]) Result {
	b := search[S]{machine: m, seen: map[S]int32{}}
	if lost, found := b.run(); found {
		return Result{States: len(b.order), Trace: b.trace(lost)}
	}
	r := Result{States: len(b.order)}
	if pinned, found := b.pinned(); found {
		r.Pinned = b.trace(pinned)
	}
	return r
}

type search[S comparable] struct {
	machine[S]
	// seen numbers the states in the order they were reached.
	seen  map[S]int32
	order []S
	// from is the step by which each state was reached first.
	from []arrival
	// sure are the sure steps, from one state to another, by number.
	sure []edge
}

type arrival struct {
	from int32
	says string
}

type edge struct{ from, to int32 }

func (b *search[S]) run() (lost int32, found bool) {
	b.reach(b.start, arrival{})
	for i := int32(0); int(i) < len(b.order); i++ {
		s := b.order[i]
		if b.lost(s) {
			return i, true
		}
		b.next(&steps[S]{from: s, found: func(says string, then S, maybe bool) {
			if then = b.same(then); then == s {
				return
			}
			to := b.reach(then, arrival{i, says})
			if !maybe {
				b.sure = append(b.sure, edge{i, to})
			}
		}})
	}
	return 0, false
}

func (b *search[S]) reach(s S, by arrival) int32 {
	number, ok := b.seen[s]
	if !ok {
		number = int32(len(b.order))
		b.seen[s] = number
		b.order, b.from = append(b.order, s), append(b.from, by)
	}
	return number
}

func (b *search[S]) trace(to int32) []string {
	var steps []string
	for ; to != 0; to = b.from[to].from {
		steps = append(steps, b.from[to].says)
	}
	slices.Reverse(steps)
	return steps
}

// pinned finds a waiting state from which no sequence of sure steps deletes the PVC.
func (b *search[S]) pinned() (int32, bool) {
	before := make([][]int32, len(b.order))
	for _, e := range b.sure {
		before[e.to] = append(before[e.to], e.from)
	}
	ends, queue := make([]bool, len(b.order)), []int32{}
	for i, s := range b.order {
		if b.over(s) {
			queue = append(queue, int32(i))
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		if i := queue[0]; !ends[i] {
			ends[i] = true
			queue = append(queue, before[i]...)
		}
	}
	for i, s := range b.order {
		if b.waits(s) && !ends[i] {
			return int32(i), true
		}
	}
	return 0, false
}

// remembered returns decide with a memory: a search asks the same questions very often.
func remembered[Q comparable, A any](decide func(Q) A) func(Q) A {
	known := map[Q]A{}
	return func(q Q) A {
		a, ok := known[q]
		if !ok {
			a = decide(q)
			known[q] = a
		}
		return a
	}
}
