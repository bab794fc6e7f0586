package main

import (
	"fmt"
	"net/http"
	"time"

	"lockstep.dev/lockstep/test/drill"
)

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
	return aftermathOf(s.audit.Kept(mark, func(r drill.Request) bool { return r.Namespace == s.namespace }), hit, isHit)
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

func (a aftermath) tell(f *figures, scenario string) {
	f.add(scenario+".leaders-deleted-beyond", float64(a.leaders-a.hit))
	f.add(scenario+".others-touched", float64(a.others))
	f.add(scenario+".late-pods", float64(a.late))
}
