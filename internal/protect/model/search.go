package model

import "slices"

// Result is what a search found.
type Result struct {
	// States is how many were visited: all there are, unless Trace is there.
	States int
	// Trace is the shortest way to lose data, or empty.
	Trace []string
	// Pinned is the shortest way to a claim that nobody uses and that can never
	// go, or empty. It is looked for only where nothing is lost.
	Pinned []string
}

// Safe tells whether no order of steps loses data.
func (r Result) Safe() bool { return len(r.Trace) == 0 }

// Search tries every order of steps, the shortest first.
func Search(rules Rules, faults Faults) Result {
	b := search{world: world{rules, faults}, from: map[state]arrival{}, before: map[state][]state{}}
	if lost, found := b.run(); found {
		return Result{States: len(b.from), Trace: b.trace(lost)}
	}
	r := Result{States: len(b.from)}
	if pinned, found := b.pinned(); found {
		r.Pinned = b.trace(pinned)
	}
	return r
}

// arrival is how a state was reached first.
type arrival struct {
	from state
	says string
}

type search struct {
	world
	from   map[state]arrival
	before map[state][]state
	order  []state
}

func (b *search) run() (lost state, found bool) {
	start := b.start()
	b.from[start] = arrival{}
	b.order = []state{start}
	for i := 0; i < len(b.order); i++ {
		s := b.order[i]
		if s.lost() {
			return s, true
		}
		for _, step := range b.next(s) {
			b.before[step.then] = append(b.before[step.then], s)
			if _, seen := b.from[step.then]; seen {
				continue
			}
			b.from[step.then] = arrival{s, step.says}
			b.order = append(b.order, step.then)
		}
	}
	return state{}, false
}

func (b *search) trace(s state) []string {
	var steps []string
	for start := b.start(); s != start; s = b.from[s].from {
		steps = append(steps, b.from[s].says)
	}
	slices.Reverse(steps)
	return steps
}

// pinned finds a state with a terminating claim and no user from which no order
// of steps ends with that claim gone.
func (b *search) pinned() (state, bool) {
	ends := map[state]bool{}
	var queue []state
	for _, s := range b.order {
		if !s.claim.exists {
			ends[s] = true
			queue = append(queue, s)
		}
	}
	for i := 0; i < len(queue); i++ {
		for _, earlier := range b.before[queue[i]] {
			if !ends[earlier] {
				ends[earlier] = true
				queue = append(queue, earlier)
			}
		}
	}
	i := slices.IndexFunc(b.order, func(s state) bool { return s.pinned() && !ends[s] })
	if i < 0 {
		return state{}, false
	}
	return b.order[i], true
}
