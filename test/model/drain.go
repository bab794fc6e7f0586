package model

import (
	"fmt"
	"slices"
)

// life is the state of a pod of a drained set.
type life int8

const (
	runs life = iota // and is ready
	ends
	ended
	starts // it is not ready yet, or not scheduled
)

// rollout is where one group is replaced by a rollout.
type rollout int8

const (
	noRollout rollout = iota
	due
	decidedUpon // the operator has read that it may
	granted
	finished
)

// drained is a set of two groups of two pods, its budget, and two drains that name pods. Drain d evicts pod d of each group.
type drained struct {
	pods [2][2]life // of each group; the first is its leader
	// chosen: the operator will delete the group. young: its pods are new, and were never ready together. next: they came
	// after an eviction. alone: its worker was replaced alone.
	chosen, young, next, alone [2]bool
	wants                      [2][2]bool // by drain and group
	replicas                   int8
	rollout                    rollout
	// min is minAvailable, and allowed what Kubernetes' controller counted. unseen: it has not counted for this min.
	min, allowed int8
	unseen       bool
	foreign, own bool // budgets over the pods
	met          bool // a drain evicted a pod that came after the one that it saw
}

// DrainRules are those of docs/design/0044-disruption-by-group.md. Each can be taken out.
type DrainRules struct {
	// Integer: the budget counts pods, and not the replicas of their controllers. LastsLong: it falls once pods are gone.
	// Closes: no eviction during a rollout. OneGroup: it does not fall while a group starts. GivesWay: to that of a user.
	Integer, LastsLong, Closes, OneGroup, GivesWay bool
	// Holds: no pod is scheduled whose name a drain may retry. Gates: nor one that replaces a worker alone.
	Holds, Gates bool
}

// Draining are the rules as they are.
func Draining() DrainRules {
	return DrainRules{Integer: true, LastsLong: true, Closes: true, OneGroup: true, GivesWay: true, Holds: true, Gates: true}
}

// Beside says what happens once beside the drains.
type Beside struct{ Rollout, Scaling, Budget, LeaderReady bool }

// SearchDrains searches two groups that are down at a time, a group that drains take twice, more than one eviction that is
// allowed, and a drain that never ends. The operator decides from what is stored, so a crash is a step that it does not take.
func SearchDrains(rules DrainRules, beside Beside) Result {
	start := drained{replicas: 2, min: 3, allowed: 1, own: true, wants: [2][2]bool{{true, true}, {true, true}}}
	return searched(machine[drained]{
		start: start, same: func(s drained) drained { return s },
		next: func(to *steps[drained]) {
			rules.users(to, beside)
			rules.evictions(to)
			rules.groups(to, beside)
			rules.budget(to)
		},
		lost: func(s drained) bool {
			return !s.foreign && (s.met || s.allowed > 1 || s.replicas == 2 && s.isDown(0) && s.isDown(1))
		},
		waits: func(s drained) bool { return s.wants != [2][2]bool{} },
		over:  func(s drained) bool { return s.wants == [2][2]bool{} },
	})
}

func (s *drained) isDown(g int) bool { return s.pods[g] != [2]life{runs, runs} }

// count counts the pods of the groups from first on.
func (s *drained) count(first int, is ...life) (n int8) {
	for _, group := range s.pods[first:] {
		for _, pod := range group {
			if slices.Contains(is, pod) {
				n++
			}
		}
	}
	return n
}

func (s *drained) end(g int) {
	for i, pod := range s.pods[g] {
		if pod != ended {
			s.pods[g][i] = ends
		}
	}
}

func (r DrainRules) users(to *steps[drained], beside Beside) {
	s := to.from
	to.maybe(beside.Rollout && s.rollout == noRollout, "a user changes the template", func(s *drained) { s.rollout = due })
	to.maybe(beside.Scaling && s.replicas == 2, "a user scales to one group", func(s *drained) { s.replicas = 1 })
	to.maybe(beside.Budget && !s.foreign, "a user creates a budget", func(s *drained) { s.foreign = true })
}

func (r DrainRules) evictions(to *steps[drained]) {
	for d := range 2 {
		for g := range 2 {
			s, pod := to.from, fmt.Sprintf("pod %d of group %d", d, g)
			is, done := s.pods[g][d], func(s *drained) { s.wants[d][g] = false }
			isFree := s.foreign != s.own && (s.foreign || !s.unseen && s.allowed > 0)
			to.surely(s.wants[d][g] && is != runs, "a drain finds that "+pod+" does not run", done)
			to.surely(s.wants[d][g] && is == runs && isFree, "a drain evicts "+pod, func(s *drained) {
				done(s)
				s.pods[g][d], s.met, s.allowed = ends, s.next[g], s.allowed-1
			})
			to.surely(is == ends, pod+" ends", func(s *drained) { s.pods[g][d] = ended })
		}
	}
}

// groups are the steps of the operator and of the StatefulSets for each group.
func (r DrainRules) groups(to *steps[drained], beside Beside) {
	for g := range 2 {
		s, group := to.from, fmt.Sprintf("group %d", g)
		isWanted, isHeld := g < int(s.replicas), r.Holds && s.next[g] && (s.wants[0][g] || s.wants[1][g])
		to.surely(!isWanted && (s.pods[g][0] != ended || s.pods[g][1] != ended), group+" is scaled away", func(s *drained) { s.end(g); s.chosen[g] = true })
		to.surely(isWanted && (s.isDown(g) || s.alone[g]) && !s.young[g] && !s.chosen[g], "the operator decides to recreate "+group, func(s *drained) {
			s.chosen[g] = true
		})
		to.surely(isWanted && s.chosen[g] && s.pods[g] != [2]life{ended, ended}, "the operator deletes "+group, func(s *drained) { s.end(g) })
		to.surely(isWanted && s.chosen[g] && s.pods[g] == [2]life{ended, ended}, group+" is created", func(s *drained) {
			s.next[g] = s.next[g] || g == 0 || s.rollout != granted
			s.chosen[g], s.young[g], s.alone[g], s.pods[g] = false, true, false, [2]life{starts, starts}
			if beside.LeaderReady {
				s.pods[g][1] = ended
			}
		})
		to.surely(s.young[g] && s.pods[g] == [2]life{runs, ended}, "workers of "+group+" are created", func(s *drained) { s.pods[g][1] = starts })
		to.surely(!s.young[g] && !s.chosen[g] && s.pods[g][1] == ended, "a StatefulSet replaces the worker of "+group, func(s *drained) { s.pods[g][1], s.alone[g] = starts, true })
		for i := range 2 {
			to.surely(s.pods[g][i] == starts && (s.young[g] || !r.Gates) && !isHeld, fmt.Sprintf("pod %d of group %d is ready", i, g), func(s *drained) {
				s.pods[g][i] = runs
				s.young[g] = s.young[g] && s.isDown(g)
			})
		}
	}
	s := to.from
	isClosed := !r.Closes || s.min == r.needed(s) || !s.own
	to.surely(s.rollout == due && isClosed && !s.isDown(0) && !s.isDown(1), "the rollout may replace group 1", func(s *drained) { s.rollout = decidedUpon })
	to.surely(s.rollout == decidedUpon, "the rollout replaces group 1", func(s *drained) { s.rollout, s.chosen[1] = granted, true; s.end(1) })
	to.surely(s.rollout == granted && !s.chosen[1] && !s.isDown(1), "the rollout ends", func(s *drained) { s.rollout = finished })
}

// needed is how many pods the budget needs: those that are wanted, and those of other groups that live.
func (r DrainRules) needed(s drained) int8 {
	n := 2 * s.replicas
	if r.LastsLong && s.replicas == 1 {
		n += s.count(1, runs, starts)
	}
	return n
}

func (r DrainRules) budget(to *steps[drained]) {
	s := to.from
	min, allowed := r.needed(s)-1, s.count(0, runs)-s.min
	switch moves := s.rollout != noRollout && s.rollout != finished; {
	case r.Closes && moves:
		min++
	case !r.OneGroup && (s.young[0] || s.young[1]):
		min -= 2
	}
	if !r.Integer { // one pod fewer than the controllers ask for: a StatefulSet that is not there asks for none
		allowed = s.count(0, runs) - 3
		for g := range 2 {
			if s.young[g] && s.pods[g][1] == ended {
				allowed++
			}
		}
	}
	to.surely(s.own && s.min != min, "the operator writes the budget", func(s *drained) { s.min, s.unseen = min, true })
	to.surely(s.own && r.GivesWay && s.foreign, "the operator deletes its budget", func(s *drained) { s.own = false })
	to.surely(s.own && (s.unseen || s.allowed != max(0, allowed)), "Kubernetes counts", func(s *drained) { s.allowed, s.unseen = max(0, allowed), false })
}
