package planner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"lockstep.dev/lockstep/test/expect"
)

// change makes a template change: a new revision is the target, or an older one is again. The target can be ready.
func (w *world) change(back int) {
	n := len(w.roles)
	row := func(of [][]int32, v int) [][]int32 {
		of = slices.Clone(of)
		if v == 0 {
			return slices.Insert(of, 0, make([]int32, n))
		}
		moved := of[v]
		return slices.Insert(slices.Delete(of, v, v+1), 0, moved)
	}
	w.intended, w.wanted, w.ready = row(w.intended, back), row(w.wanted, back), row(w.ready, back)
	if back > 0 {
		w.never = slices.Delete(slices.Clone(w.never), back, back+1)
	}
	w.never = slices.Insert(slices.Clone(w.never), 0, make([]bool, n))
	w.retarget()
}

// retarget makes what the target intends what the roles want.
func (w *world) retarget() {
	w.intended[0] = make([]int32, len(w.roles))
	for r, role := range w.roles {
		w.intended[0][r] = role.Target
	}
}

// forget drops older revisions without groups, as the set deletes their children.
func (w *world) forget() {
	for v := len(w.wanted) - 1; v > 0; v-- {
		if slices.Max(w.wanted[v]) == 0 {
			w.intended, w.wanted, w.ready = slices.Delete(w.intended, v, v+1), slices.Delete(w.wanted, v, v+1), slices.Delete(w.ready, v, v+1)
			w.never = slices.Delete(slices.Clone(w.never), v, v+1)
		}
	}
}

// harms says what a step does that no readiness of others excuses, or is empty.
func (w *world) harms(before *world) string {
	b := before.bounds()
	ready, pairs, _ := w.standing()
	had, hadPairs, _ := before.standing()
	for r := range w.roles {
		if ready[r] < min(b.floors[r], had[r]) {
			return fmt.Sprintf("a1: a step takes role %d from %d to %d, floor %d", r, had[r], ready[r], b.floors[r])
		}
		was, is := before.leaving[r], w.leaving[r]
		for v := range w.wanted {
			was, is = was+before.wanted[v][r], is+w.wanted[v][r]
		}
		if is > was && is > b.ceilings[r] {
			return fmt.Sprintf("b: a step takes role %d from %d groups to %d, ceiling %d", r, was, is, b.ceilings[r])
		}
	}
	if pairs < min(b.pairs, hadPairs)-1e-9 {
		return fmt.Sprintf("a3: a step takes pairs from %.2f to %.2f, floor %.2f", hadPairs, pairs, b.pairs)
	}
	return ""
}

// walker changes one world at random.
type walker struct {
	*rand.Rand
	*world
}

func newWalker(seed uint64) *walker {
	random := rand.New(rand.NewPCG(seed, 1))
	n := 1 + random.IntN(4)
	if random.IntN(8) == 0 {
		n = 5 + random.IntN(6)
	}
	var roles []Role
	var old []int32
	for range n {
		role := Role{Target: 1 + random.Int32N(7), Surge: random.Int32N(3), Unavailable: random.Int32N(3)}
		if role.Surge+role.Unavailable == 0 {
			role.Surge = 1
		}
		roles, old = append(roles, role), append(old, role.Target)
	}
	return &walker{random, rolloutOf(roles, old...)}
}

// disturb is what users and failures do.
func (w *walker) disturb() {
	switch w.IntN(6) {
	case 0:
		if len(w.wanted) < 4 {
			w.spoil()
			w.change(0)
		}
	case 1:
		w.change(w.IntN(len(w.wanted)))
	case 2, 3:
		w.roles = slices.Clone(w.roles)
		r := w.IntN(len(w.roles))
		w.roles[r].Target = 1 + w.Int32N(7)
		if w.IntN(4) == 0 && r > 0 { // the role is removed
			w.roles[r].Target = 0
		}
		w.retarget()
	case 4:
		v, r := w.IntN(len(w.wanted)), w.IntN(len(w.roles))
		w.ready[v][r] = max(0, w.ready[v][r]-1)
	}
}

// spoil is why the next template is made, now and then: a role of the present one is never ready.
func (w *walker) spoil() {
	if w.IntN(3) > 0 {
		return
	}
	w.never = slices.Clone(w.never)
	w.never[0] = make([]bool, len(w.roles))
	w.never[0][w.IntN(len(w.roles))] = true
	for r, isBroken := range w.never[0] {
		if isBroken {
			w.ready = slices.Clone(w.ready)
			w.ready[0] = slices.Clone(w.ready[0])
			w.ready[0][r] = 0
		}
	}
}

// step lets the planner act.
func (w *walker) step(plan planner) (fault string, isStuck bool) {
	s := w.slice()
	next, stuck := plan(s)
	after := w.carry(next)
	fault = after.harms(w.world)
	if fault != "" {
		fault += "; " + after.String() + "; from " + w.String()
	}
	isStuck = after.key() == w.key() && len(w.events(false)) == 0 && !s.IsDone()
	if isStuck && len(stuck) == 0 {
		fault = "stopped: " + w.String()
	}
	w.world = after
	w.forget()
	return fault, isStuck
}

// walk plays one world with disturbances, and then to its end.
func walk(seed uint64, plan planner) (fault string) {
	w := newWalker(seed)
	for range 40 {
		if w.IntN(7) == 0 {
			w.disturb()
		} else if events := w.events(false); len(events) > 0 && w.IntN(3) > 0 {
			w.world = events[w.IntN(len(events))]
		} else if fault, _ := w.step(plan); fault != "" {
			return fault
		}
	}
	for range 2000 {
		fault, isStuck := w.step(plan)
		if fault != "" || isStuck || w.slice().IsDone() {
			return fault
		}
		if events := w.events(false); len(events) > 0 {
			w.world = events[w.IntN(len(events))]
		}
	}
	return "has no end: " + w.String()
}

func TestWalks(t *testing.T) {
	faults := map[string]int{}
	for seed := range uint64(walks(t)) {
		if fault := walk(seed, Next); fault != "" {
			if faults[fault[:2]]++; faults[fault[:2]] < 4 {
				t.Errorf("seed %d: %s", seed, fault)
			}
		}
	}
	expect.That(t, len(faults) == 0, "%v", faults)
}
