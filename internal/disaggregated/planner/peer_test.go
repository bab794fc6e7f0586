package planner

import (
	"math"
	"slices"
)

// proportional is the planner of other implementations: it counts specs, waits until the whole target is ready, and drains
// in the proportions of one clock. The laws must refuse it.
func proportional(s Slice) (Counts, []string) {
	n := len(s.Roles)
	now := s.Wanted()
	for _, row := range s.Revisions[0].Rows {
		if slices.Contains(row.Ready, false) {
			return now, nil
		}
	}
	initial, target, old, fresh := make([]int, n), make([]int, n), make([]int, n), make([]int, n)
	surge, unavailable := make([]int, n), make([]int, n)
	steps, isDone, isThere := 0.0, true, true
	for r, role := range s.Roles {
		initial[r], target[r] = int(s.Revisions[1].Rows[r].Intended), int(role.Target)
		old[r], fresh[r] = int(now[1][r]), int(now[0][r])
		surge[r], unavailable[r] = int(role.Surge), int(role.Unavailable)
		batch := max(1, unavailable[r])
		if surge[r] > 0 {
			batch = surge[r]
		}
		steps = max(steps, math.Ceil(float64(max(initial[r], target[r]))/float64(batch)))
		isThere = isThere && fresh[r] >= target[r]
		isDone = isDone && old[r] == 0 && fresh[r] >= target[r]
	}
	step := func(old, fresh []int) (Counts, []string) {
		next := Counts{make([]int32, n), make([]int32, n)}
		for r := range n {
			next[0][r], next[1][r] = int32(fresh[r]), int32(old[r])
		}
		return next, nil
	}
	switch {
	case isDone || steps == 0:
		return now, nil
	case isThere:
		return step(make([]int, n), fresh)
	}
	least := steps
	for r := range n {
		if target[r] > 0 {
			least = min(least, math.Floor(float64(fresh[r])*steps/float64(target[r])))
		}
	}
	grown, grows, fits := make([]int, n), false, true
	for r := range n {
		grown[r] = max(fresh[r], min(int(math.Ceil((least+1)*float64(target[r])/steps)), target[r]))
		grows = grows || grown[r] > fresh[r]
		fits = fits && (target[r] == 0 || old[r]+grown[r] <= target[r]+surge[r])
	}
	if grows && fits {
		return step(old, grown)
	}
	floor := func(r, fresh int) int {
		if initial[r] < target[r] {
			return 0
		}
		return max(0, target[r]-unavailable[r]-fresh)
	}
	together := func(drained, fresh []int) {
		zeros, olds, mayGo := 0, 0, true
		for r := range n {
			if initial[r] > 0 {
				olds++
				if drained[r] == 0 {
					zeros++
				}
			}
			if initial[r] >= target[r] && fresh[r] < target[r]-unavailable[r] {
				mayGo = false
			}
		}
		if zeros == 0 || zeros == olds {
			return
		}
		for r := range n {
			switch {
			case initial[r] == 0:
			case mayGo:
				drained[r] = 0
			case drained[r] == 0:
				drained[r] = 1
			}
		}
	}
	changed := func(drained []int) bool {
		for r := range n {
			if drained[r] < old[r] {
				return true
			}
		}
		return false
	}
	most := 0.0
	for r := range n {
		if initial[r] > 0 {
			most = max(most, math.Floor(float64(initial[r]-old[r])*steps/float64(initial[r])))
		}
	}
	drained := make([]int, n)
	for r := range n {
		drained[r] = min(old[r], max(0, initial[r]-int(math.Floor((most+1)*float64(initial[r])/steps))))
		drained[r] = max(drained[r], floor(r, fresh[r]))
	}
	together(drained, fresh)
	if changed(drained) {
		return step(drained, fresh)
	}
	for r := range n {
		drained[r] = max(max(0, min(old[r], target[r]+surge[r]-grown[r])), floor(r, grown[r]))
	}
	if changed(drained) {
		together(drained, grown)
		return step(drained, grown)
	}
	return now, nil
}
