package main

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"lockstep.dev/lockstep/test/drill"
)

// aftermath is what became of the groups of which a worker was killed.
type aftermath struct {
	hit     int
	leaders int // deletions of leaders that the API server took
	made    int // pods created since their group's leader was deleted
	most    int // the most of them in one group
	others  int // pods of other groups that were created or deleted
	// late are pods that the StatefulSet controller put into a killed one's place before
	// its StatefulSet was gone. Both learn of the pod by the same event; who is first is
	// a matter of luck, but that the failure is on record before anything is deleted.
	late int
}

// aftermath reads the audit log from a mark on. hit is how many groups were, and isHit
// which.
func (s *stage) aftermath(mark, hit int, isHit func(int) bool) aftermath {
	return aftermathOf(s.audit.Kept(mark, func(r drill.Request) bool { return r.Namespace == s.namespace }), hit, isHit)
}

func aftermathOf(requests []drill.Request, hit int, isHit func(int) bool) aftermath {
	requests = slices.DeleteFunc(requests, func(r drill.Request) bool {
		return !drill.CreatesPod(r) && (r.Verb != "delete" || r.Code != http.StatusOK)
	})
	a, ended, made := aftermath{hit: hit}, map[int]time.Time{}, map[int]int{}
	for _, r := range requests {
		var group, worker int
		n, _ := fmt.Sscanf(r.Name, "a-%d-%d", &group, &worker)
		if n == 1 && r.Resource == "pods" && drill.ByLockstep(r) {
			a.leaders++
			ended[group] = r.Begun
		}
		if n > 0 && !isHit(group) {
			a.others++
		}
	}
	for _, r := range requests {
		var group int
		if n, _ := fmt.Sscanf(r.Name, "a-%d", &group); n == 0 || !drill.CreatesPod(r) || !isHit(group) {
			continue
		}
		if at, known := ended[group]; !known || r.Begun.Before(at) {
			a.late++
			continue
		}
		made[group]++
		a.made++
		a.most = max(a.most, made[group])
	}
	return a
}

func (a aftermath) tell(f *figures, scenario string) {
	f.add(scenario+".leaders-deleted-beyond", float64(a.leaders-a.hit))
	f.add(scenario+".others-touched", float64(a.others))
	f.add(scenario+".late-pods", float64(a.late))
}
