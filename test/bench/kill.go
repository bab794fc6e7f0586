package main

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// kills is how often killOne kills.
const kills = 25

// recreating is a load whose groups are recreated when a worker goes.
func recreating(groups int) load {
	l := own(groups, 8)
	l.policy = lwsv1.RecreateGroupOnPodRestart
	return l
}

// killOne deletes a worker of one group after the other. It measures how long it takes until
// the operator deletes the leader, and until the group is whole. The floor is the eight pods
// of a group deleted by the bench.
func killOne(b *bed) {
	bare := b.standing(floor(4, 8))
	group := []string{"a-1", "a-1-1", "a-1-2", "a-1-3", "a-1-4", "a-1-5", "a-1-6", "a-1-7"}
	floorCost := bare.spend("the group is whole again", func() error { return drill.Together(group, bare.kill) }, bare.complete)
	bare.leave()
	s := b.standing(recreating(kills))
	defer s.leave()
	s.rest()
	s.remark()
	mark := s.mark
	var costs []cost
	for i := range kills {
		costs = append(costs, s.spend("the group is whole again", func() error { return s.killWorker(i) }, s.recreated(8*(i+1))))
	}
	answers := s.answers(kills)
	after := s.aftermath(mark, kills, func(int) bool { return true })
	slices.SortFunc(costs, func(a, b cost) int { return int(a.time - b.time) })
	median := costs[len(costs)/2]
	median.pods = after.most
	b.tellCost(median, floorCost)
	after.tell(b)
	b.tell("answer-ms-median", milliseconds(answers[len(answers)/2]))
	b.tell("answer-ms-p99", milliseconds(percentile(answers, 99)))
}

// killForty deletes a worker of every second group or so, all at once.
func killForty(b *bed) {
	const groups, hit = 100, 40
	s := b.standing(recreating(groups))
	defer s.leave()
	s.rest()
	s.remark()
	mark, victims := s.mark, make([]int, hit)
	for i := range victims {
		victims[i] = i * groups / hit
	}
	c := s.spend("all groups are whole again", func() error { return drill.Together(victims, s.killWorker) }, s.recreated(8*hit))
	answers := s.answers(hit)
	b.tellCost(c, cost{})
	b.tell("answer-ms-p99", milliseconds(answers[len(answers)-1]))
	after := s.aftermath(mark, hit, func(group int) bool { return slices.Contains(victims, group) })
	after.tell(b)
	b.tell("pods-created-beyond", float64(after.made-8*hit))
}

func (s *stage) killWorker(group int) error { return s.kill(fmt.Sprintf("a-%d-3", group)) }

// recreated reports whether so many pods were created since the load came, and all of them
// are ready.
func (s *stage) recreated(pods int) func() bool {
	return func() bool { return s.created >= s.groups*s.size+pods && s.complete() }
}

// answers returns how long after each worker's deletion the operator began to delete its leader,
// by the API server's clock, shortest first.
func (s *stage) answers(want int) []time.Duration {
	must(s.Audit.Sync())
	answers := answersOf(s.Audit.Kept(0, func(r drill.Request) bool { return r.Namespace == s.namespace && deletesPod(r) }))
	valid(len(answers) >= want, "the operator deleted %d leaders for %d workers", len(answers), want)
	return answers
}

// answersOf times the first deletion of a leader after that of a worker by the bench.
func answersOf(deletions []drill.Request) (answers []time.Duration) {
	killed := map[string]time.Time{} // by the leader, until it is deleted
	for _, r := range deletions {
		var group, worker int
		n, _ := fmt.Sscanf(r.Name, "a-%d-%d", &group, &worker)
		at, awaited := killed[r.Name]
		switch {
		case n == 2 && r.Agent == benchAgent:
			killed[fmt.Sprintf("a-%d", group)] = r.Done
		case awaited && drill.ByLockstep(r):
			answers = append(answers, r.Begun.Sub(at))
			delete(killed, r.Name)
		}
	}
	slices.Sort(answers)
	return answers
}

// aftermath counts what happened to groups after a worker of each was killed.
type aftermath struct {
	hit     int
	leaders int // deletions of leaders that the API server took
	made    int // pods created in the new incarnations
	most    int // the most of them in one group
	others  int // pods of other groups that were created or deleted
	// late are pods that the StatefulSet controller created in a killed one's place, in an
	// incarnation that was about to end. The operator learns of the pod by the same event.
	late int
}

// aftermath reads the audit log from a mark on. hit is how many groups lost a worker, and
// isHit which.
func (s *stage) aftermath(mark, hit int, isHit func(int) bool) aftermath {
	return aftermathOf(s.Audit.Kept(mark, func(r drill.Request) bool { return r.Namespace == s.namespace }), hit, isHit)
}

func aftermathOf(requests []drill.Request, hit int, isHit func(int) bool) aftermath {
	a, begun, made := aftermath{hit: hit}, map[string]time.Time{}, map[int]int{}
	for _, r := range requests {
		var group, worker int
		switch n, _ := fmt.Sscanf(r.Name, "a-%d-%d", &group, &worker); {
		case n == 0:
		case deletesPod(r):
			if n == 1 && drill.ByLockstep(r) {
				a.leaders++
				begun[r.Name] = r.Begun // its leader comes next
			}
			if !isHit(group) {
				a.others++
			}
		case drill.CreatesPod(r):
			if !isHit(group) {
				a.others++
			}
		case makesStatefulSet(r):
			begun[r.Name+"-"] = r.Begun
		}
	}
	for _, r := range requests {
		var group, worker int
		n, _ := fmt.Sscanf(r.Name, "a-%d-%d", &group, &worker)
		if n == 0 || !drill.CreatesPod(r) || !isHit(group) {
			continue
		}
		maker := fmt.Sprintf("a-%d", group)
		if n == 2 {
			maker += "-"
		}
		if at, known := begun[maker]; !known || r.Begun.Before(at) {
			a.late++
			continue
		}
		made[group]++
		a.made++
		a.most = max(a.most, made[group])
	}
	return a
}

func deletesPod(r drill.Request) bool {
	return r.Verb == "delete" && r.Resource == "pods" && r.Code == http.StatusOK
}

func makesStatefulSet(r drill.Request) bool {
	return r.Resource == "statefulsets" && r.Code == http.StatusCreated && drill.ByLockstep(r)
}

func (a aftermath) tell(b *bed) {
	b.tell("leaders-deleted-beyond", float64(a.leaders-a.hit))
	b.tell("others-touched", float64(a.others))
	b.tell("late-pods", float64(a.late))
}
