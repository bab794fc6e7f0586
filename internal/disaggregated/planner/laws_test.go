package planner

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"lockstep.dev/lockstep/test/expect"
)

// world is a slice as a simulator knows it: of each row, how many groups are wanted and ready. A removal takes ready
// groups first, which is the worst that a controller of children can do.
type world struct {
	roles    []Role
	intended [][]int32 // by revision, role; the target's is Target
	wanted   [][]int32
	ready    [][]int32
	leaving  []int32
	never    [][]bool // by revision, role: its groups are never ready
	failed   bool
}

func (w *world) clone() *world {
	next := &world{roles: w.roles, intended: w.intended, never: w.never, leaving: slices.Clone(w.leaving), failed: w.failed}
	for v := range w.wanted {
		next.wanted = append(next.wanted, slices.Clone(w.wanted[v]))
		next.ready = append(next.ready, slices.Clone(w.ready[v]))
	}
	return next
}

func (w *world) key() string {
	key := make([]byte, 0, 64)
	for v := range w.wanted {
		for r := range w.roles {
			key = append(key, byte(w.wanted[v][r]), byte(w.ready[v][r]))
		}
	}
	for _, n := range w.leaving {
		key = append(key, byte(n))
	}
	if w.failed {
		key = append(key, 1)
	}
	return string(key)
}

func (w *world) slice() Slice {
	s := Slice{Roles: slices.Clone(w.roles)}
	for r := range s.Roles {
		s.Roles[r].Leaving = w.leaving[r]
	}
	for v := range w.wanted {
		rev := Revision{Name: fmt.Sprint(v)}
		for r := range w.roles {
			row := Row{Intended: w.intended[v][r], Ready: make([]bool, w.wanted[v][r])}
			for i := range row.Ready {
				row.Ready[i] = int32(i) >= w.wanted[v][r]-w.ready[v][r]
			}
			rev.Rows = append(rev.Rows, row)
		}
		s.Revisions = append(s.Revisions, rev)
	}
	return s
}

// carry makes the wanted counts those of a step.
func (w *world) carry(next Counts) *world {
	after := w.clone()
	for v := range next {
		for r, n := range next[v] {
			if gone := after.wanted[v][r] - n; gone > 0 {
				after.leaving[r] += gone
				after.ready[v][r] = max(0, after.ready[v][r]-gone)
			}
			after.wanted[v][r] = n
		}
	}
	return after
}

// events are the worlds that may follow without a step.
func (w *world) events(fails bool) (all []*world) {
	for v := range w.wanted {
		for r := range w.roles {
			if w.ready[v][r] < w.wanted[v][r] && !w.never[v][r] {
				next := w.clone()
				next.ready[v][r]++
				all = append(all, next)
			}
			if fails && !w.failed && w.ready[v][r] > 0 {
				next := w.clone()
				next.ready[v][r]--
				next.failed = true
				all = append(all, next)
			}
		}
	}
	for r := range w.roles {
		if w.leaving[r] > 0 {
			next := w.clone()
			next.leaving[r]--
			all = append(all, next)
		}
	}
	return all
}

// standing is what users have: ready groups in complete revisions by role, and pairs. It is counted without the planner.
func (w *world) standing() (ready []int32, pairs float64, complete bool) {
	ready = make([]int32, len(w.roles))
	for v := range w.wanted {
		share, isAny := math.Inf(1), false
		for r, intended := range w.intended[v] {
			if intended > 0 {
				share, isAny = min(share, float64(w.ready[v][r])/float64(intended)), true
			}
		}
		if !isAny || share == 0 {
			continue
		}
		complete = true
		pairs += share
		for r := range w.roles {
			ready[r] += w.ready[v][r]
		}
	}
	return ready, pairs, complete
}

// bounds are what the promises say of a world: floors and ceilings by role, the least sum of pairs and the widest window.
type bounds struct {
	floors, ceilings []int32
	pairs, window    float64
	fleet            float64
}

func (w *world) bounds() (b bounds) {
	b.pairs = math.Inf(1)
	for r, role := range w.roles {
		low, high, isOld := role.Target, role.Target, len(w.intended) == 1
		for v := 1; v < len(w.intended); v++ {
			if w.intended[v][r] > 0 {
				low, isOld = min(low, w.intended[v][r]), true
			}
			high = max(high, w.intended[v][r])
		}
		if !isOld { // no older revision has the role
			low = 0
		}
		b.floors = append(b.floors, max(0, low-role.Unavailable))
		b.ceilings = append(b.ceilings, high+role.Surge)
		for v := range w.intended {
			if w.intended[v][r] > 0 {
				b.fleet = max(b.fleet, 1/float64(w.intended[v][r]))
			}
		}
		if role.Target > 0 {
			b.pairs = min(b.pairs, float64(b.floors[r])/float64(role.Target))
			b.window = max(b.window, 1/float64(role.Target))
		}
	}
	if b.window == 0 { // nothing is wanted
		b.pairs = 0
	}
	b.pairs -= b.window
	return b
}

// broken says which promise a world breaks, or is empty. before is the world before a step, or nil after an event.
func (w *world) broken(b bounds, before *world) string {
	ready, pairs, complete := w.standing()
	holding := func(r int) int32 {
		n := w.leaving[r]
		for v := range w.wanted {
			n += w.wanted[v][r]
		}
		return n
	}
	for r := range w.roles {
		if n := holding(r); n > b.ceilings[r] {
			return fmt.Sprintf("b: %d groups of role %d hold nodes, %d may", n, r, b.ceilings[r])
		}
	}
	if w.failed {
		if before == nil {
			return ""
		}
		had, hadPairs, _ := before.standing()
		for r := range w.roles {
			if ready[r] < min(b.floors[r], had[r]) {
				return fmt.Sprintf("a1: after a failure a step takes role %d from %d to %d, floor %d", r, had[r], ready[r], b.floors[r])
			}
		}
		if pairs < min(b.pairs, hadPairs)-1e-9 {
			return fmt.Sprintf("a3: after a failure a step takes pairs from %.2f to %.2f, floor %.2f", hadPairs, pairs, b.pairs)
		}
		return ""
	}
	all := true
	for r := range w.roles {
		if ready[r] < b.floors[r] {
			return fmt.Sprintf("a1: role %d has %d ready in complete revisions, floor %d", r, ready[r], b.floors[r])
		}
		all = all && b.floors[r] > 0
	}
	if all && !complete {
		return "a2: no revision is complete"
	}
	if pairs < b.pairs-1e-9 {
		return fmt.Sprintf("a3: %.3f pairs, floor %.3f", pairs, b.pairs)
	}
	return w.uneven(b)
}

// uneven says where roles are further apart than one group of the smallest, while no group is unready.
func (w *world) uneven(b bounds) string {
	for v := range w.wanted {
		if !slices.Equal(w.wanted[v], w.ready[v]) {
			return ""
		}
	}
	low, high := math.Inf(1), math.Inf(-1)
	for r, role := range w.roles {
		if role.Target > 0 {
			part := float64(w.ready[0][r]) / float64(role.Target)
			low, high = min(low, part), max(high, part)
		}
	}
	if high-low > b.window+1e-9 && high <= 1 {
		return fmt.Sprintf("g: the target's roles are %.2f apart, %.2f may be", high-low, b.window)
	}
	low, high = math.Inf(1), math.Inf(-1)
	for r := range w.roles {
		part := 0.0
		for v := range w.wanted {
			if w.intended[v][r] == 0 {
				part = math.NaN()
				break
			}
			part += float64(w.ready[v][r]) / float64(w.intended[v][r])
		}
		if !math.IsNaN(part) { // groups above what is wanted surge
			low, high = min(low, part), max(high, min(1, part))
		}
	}
	if high-low > b.fleet+1e-9 {
		return fmt.Sprintf("g: the fleet's roles are %.2f apart, %.2f may be", high-low, b.fleet)
	}
	return ""
}

func (w *world) String() string {
	text := ""
	for _, role := range w.roles {
		text += fmt.Sprintf("{N%d s%d u%d}", role.Target, role.Surge, role.Unavailable)
	}
	for v := len(w.wanted) - 1; v >= 0; v-- {
		text += fmt.Sprintf(" I%v %v(%v ready)", w.intended[v], w.wanted[v], w.ready[v])
	}
	return text + fmt.Sprintf(" leaving %v failed %v never %v", w.leaving, w.failed, w.never)
}

type planner func(Slice) (Counts, []string)

// explore visits every world that can follow once. It returns what is broken first, by promise, and how many worlds it saw.
func explore(start *world, plan planner, fails bool) (faults map[string]string, worlds int) {
	return exploreEach(start, plan, fails, func(*world) {})
}

// exploreEach explores, and calls do with each world.
func exploreEach(start *world, plan planner, fails bool, do func(*world)) (faults map[string]string, worlds int) {
	faults = map[string]string{}
	b := start.bounds()
	seen := map[string]bool{start.key(): true}
	queue := []*world{start}
	visit := func(next, before *world, from string) {
		if fault := next.broken(b, before); fault != "" {
			if _, known := faults[fault[:2]]; !known {
				faults[fault[:2]] = fmt.Sprintf("%s; %s; from %s", fault, next, from)
			}
		}
		if k := next.key(); !seen[k] {
			seen[k] = true
			queue = append(queue, next)
		}
	}
	for len(queue) > 0 {
		w := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		do(w)
		s := w.slice()
		next, stuck := plan(s)
		events := w.events(fails)
		after := w.carry(next)
		visit(after, w, w.String())
		if after.key() == w.key() && len(w.events(false)) == 0 && !s.IsDone() && len(stuck) == 0 {
			faults["st"] = "stopped: " + w.String()
		}
		for _, event := range events {
			visit(event, nil, w.String())
		}
	}
	return faults, len(seen)
}

// rollout is a world before the first step of a rollout: the target has no group yet.
func rolloutOf(roles []Role, old ...int32) *world {
	w := &world{roles: roles, leaving: make([]int32, len(roles))}
	target := make([]int32, len(roles))
	for r := range roles {
		target[r] = roles[r].Target
	}
	none := make([]int32, len(roles))
	w.never = [][]bool{make([]bool, len(roles)), make([]bool, len(roles))}
	w.intended = [][]int32{target, old}
	w.wanted = [][]int32{slices.Clone(none), slices.Clone(old)}
	w.ready = [][]int32{slices.Clone(none), slices.Clone(old)}
	return w
}

// vectors calls do with each world of n roles with sizes from least to most and budgets up to budget. Where scaled is
// set, the old and new sizes are independent.
func vectors(n int, least, most, budget int32, scaled bool, do func(*world)) {
	var roles []Role
	var old []int32
	var choose func()
	choose = func() {
		if len(roles) == n {
			do(rolloutOf(slices.Clone(roles), slices.Clone(old)...))
			return
		}
		for size := least; size <= most; size++ {
			for was := least; was <= most; was++ {
				if !scaled && was != size {
					continue
				}
				for s := int32(0); s <= budget; s++ {
					for u := int32(0); u <= budget; u++ {
						if s+u == 0 {
							continue
						}
						roles, old = append(roles, Role{Target: size, Surge: s, Unavailable: u}), append(old, was)
						choose()
						roles, old = roles[:len(roles)-1], old[:len(old)-1]
					}
				}
			}
		}
	}
	choose()
}

// isWhole reports whether a run plays every world that the promises speak of: `make laws` does.
func isWhole() bool { return os.Getenv("LOCKSTEP_LAWS") != "" }

// choose returns the first value in a whole run, and otherwise the second.
func choose[T any](whole, part T) T {
	if isWhole() {
		return whole
	}
	return part
}

// Promises: a1, a2 and a3 (pairs), b (nodes), g (ratio), and that no world stops but one whose stop is told.
func TestEveryWorldKeepsItsPromises(t *testing.T) {
	for name, c := range map[string]struct {
		roles               int
		least, most, budget int32
		isScaled, fails     bool
	}{
		"one role":                             {1, 0, choose[int32](5, 4), 2, true, true},
		"two roles":                            {2, 0, choose[int32](5, 4), choose[int32](2, 1), false, true},
		"two roles of other sizes than before": {2, 0, choose[int32](5, 3), choose[int32](2, 1), true, isWhole()},
		"three roles":                          {3, 1, choose[int32](3, 2), 1, false, isWhole()},
	} {
		t.Run(name, func(t *testing.T) {
			counts, vectorsSeen, worlds := map[string]int{}, 0, 0
			vectors(c.roles, c.least, c.most, c.budget, c.isScaled, func(w *world) {
				faults, n := explore(w, Next, c.fails)
				vectorsSeen, worlds = vectorsSeen+1, worlds+n
				for promise, fault := range faults {
					if counts[promise]++; counts[promise] < 3 {
						t.Errorf("%s: %s", promise, fault)
					}
				}
			})
			t.Logf("%d vectors, %d worlds, faults %v", vectorsSeen, worlds, counts)
		})
	}
}

// A template whose groups are never ready is repaired by another, or undone, wherever its rollout stands: neither waits for it.
func TestARepairHasAnEnd(t *testing.T) {
	for name, c := range map[string]struct {
		roles       int
		least, most int32
		isScaled    bool
	}{
		"one role":                   {1, 0, 3, true},
		"two roles":                  {2, 1, choose[int32](4, 2), false},
		"a role is added or removed": {2, 0, choose[int32](2, 1), true},
		"three roles":                {3, 1, choose[int32](2, 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			repairs, faults := 0, 0
			repair := func(w *world) {
				for back := range w.wanted { // another template, or the one before
					repaired := w.clone()
					repaired.change(back)
					repairs++
					if fault := repaired.end(); fault != "" {
						if faults++; faults < 4 {
							t.Errorf("%s; from %s", fault, repaired)
						}
					}
				}
			}
			vectors(c.roles, c.least, c.most, 1, c.isScaled, func(w *world) {
				for kind := 1; kind < 1<<c.roles; kind++ {
					second := w.spoilt(kind)
					exploreEach(second, Next, false, repair)
					first := second.clone()
					first.intended, first.wanted, first.ready, first.never = second.intended[:1], first.wanted[:1], first.ready[:1], second.never[:1]
					exploreEach(first, Next, false, repair)
				}
			})
			t.Logf("%d repairs, %d faults", repairs, faults)
		})
	}
}

// spoilt is a world whose target is never ready in some roles, by bit.
func (w *world) spoilt(kind int) *world {
	spoilt := w.clone()
	spoilt.never = slices.Clone(spoilt.never)
	spoilt.never[0] = make([]bool, len(w.roles))
	for r := range w.roles {
		spoilt.never[0][r] = kind>>r&1 == 1
	}
	return spoilt
}

// end plays a world until nothing happens any more, and returns why it has no end, or is empty.
func (w *world) end() string {
	for range 1000 {
		s := w.slice()
		next, stuck := Next(s)
		after := w.carry(next)
		events := after.events(false)
		switch {
		case s.IsDone() || len(stuck) > 0:
			return ""
		case len(events) > 0:
			w = events[0]
		case after.key() == w.key():
			return "stopped: " + w.String()
		default:
			w = after
		}
	}
	return "has no end: " + w.String()
}

// The planner of other implementations breaks the promises: the laws can fail.
func TestTheProportionalPlannerBreaksThePromises(t *testing.T) {
	w := rolloutOf([]Role{{Target: 1, Unavailable: 1}, {Target: 1, Surge: 1}}, 1, 1)
	faults, _ := explore(w, proportional, false)
	expect.That(t, faults["b:"] != "", "1/1 with {s0,u1} and {s1,u0}: %v", faults)
	w = rolloutOf([]Role{{Target: 4, Surge: 1}, {Target: 4, Surge: 1}}, 4, 4)
	faults, _ = explore(w, proportional, false)
	expect.That(t, faults["b:"] != "", "4/4 with groups that end late: %v", faults)
}

// walks is how many random walks a run makes.
func walks(t *testing.T) int {
	t.Helper()
	return choose(1_000_000, 10_000)
}

func TestCourses(t *testing.T) {
	role := func(n, surge, unavailable int32) Role { return Role{Target: n, Surge: surge, Unavailable: unavailable} }
	for _, tt := range []struct {
		name  string
		roles []Role
		old   []int32
		want  string
	}{
		{"1/1 s1", []Role{role(1, 1, 0), role(1, 1, 0)}, []int32{1, 1}, "[1 1]+[0 0] [1 1]+[1 1] [0 0]+[1 1]"},
		{"2/2 s1", []Role{role(2, 1, 0), role(2, 1, 0)}, []int32{2, 2}, "[2 2]+[0 0] [2 2]+[1 1] [1 1]+[1 1] [1 1]+[2 2] [0 0]+[2 2]"},
		{"6/2 s1", []Role{role(6, 1, 0), role(2, 1, 0)}, []int32{6, 2}, "[6 2]+[0 0] [6 2]+[1 1] [5 2]+[1 1] [5 2]+[2 1] [4 2]+[2 1] [4 1]+[3 1] [3 1]+[3 2] [3 1]+[4 2] [2 1]+[4 2] [2 1]+[5 2] [1 1]+[5 2] [1 1]+[6 2] [0 0]+[6 2]"},
		{"6/2 s2", []Role{role(6, 2, 0), role(2, 2, 0)}, []int32{6, 2}, "[6 2]+[0 0] [6 2]+[2 1] [4 2]+[2 1] [4 1]+[4 2] [2 1]+[4 2] [2 1]+[6 2] [0 0]+[6 2]"},
		{"4/4 s0 u1", []Role{role(4, 0, 1), role(4, 0, 1)}, []int32{4, 4}, "[4 4]+[0 0] [3 3]+[0 0] [3 3]+[1 1] [2 2]+[1 1] [2 2]+[2 2] [1 1]+[2 2] [1 1]+[3 3] [0 0]+[3 3] [0 0]+[4 4]"},
		{"4/4 s0 u2", []Role{role(4, 0, 2), role(4, 0, 2)}, []int32{4, 4}, "[4 4]+[0 0] [2 2]+[0 0] [2 2]+[2 2] [0 0]+[2 2] [0 0]+[4 4]"},
		{"6/6 s2 u2", []Role{role(6, 2, 2), role(6, 2, 2)}, []int32{6, 6}, "[6 6]+[0 0] [4 4]+[2 2] [2 2]+[4 4] [0 0]+[6 6]"},
		{"5/2 s2 u1", []Role{role(5, 2, 1), role(2, 2, 1)}, []int32{5, 2}, "[5 2]+[0 0] [4 2]+[2 1] [3 2]+[3 2] [3 1]+[4 2] [0 0]+[4 2] [0 0]+[5 2]"},
		{"10/2 to 6/8 s2", []Role{role(6, 2, 0), role(8, 2, 0)}, []int32{10, 2}, "[10 2]+[0 0] [6 2]+[2 4] [5 1]+[6 8] [0 0]+[6 8]"},
		{"4/4 to 6/6 s1", []Role{role(6, 1, 0), role(6, 1, 0)}, []int32{4, 4}, "[4 4]+[0 0] [4 4]+[3 3] [1 1]+[3 3] [1 1]+[6 6] [0 0]+[6 6]"},
		{"5/5 to 2/2 s1", []Role{role(2, 1, 0), role(2, 1, 0)}, []int32{5, 5}, "[5 5]+[0 0] [3 3]+[1 1] [1 1]+[2 2] [0 0]+[2 2]"},
		{"12/6 s2", []Role{role(12, 2, 0), role(6, 2, 0)}, []int32{12, 6}, "[12 6]+[0 0] [12 6]+[2 2] [10 5]+[2 2] [10 5]+[4 3] [8 4]+[4 3] [8 4]+[6 4] [6 3]+[6 4] [6 3]+[8 5] [4 2]+[8 5] [4 2]+[10 6] [2 1]+[10 6] [2 1]+[12 6] [0 0]+[12 6]"},
		{"10/10 s3", []Role{role(10, 3, 0), role(10, 3, 0)}, []int32{10, 10}, "[10 10]+[0 0] [10 10]+[3 3] [7 7]+[3 3] [7 7]+[6 6] [4 4]+[6 6] [4 4]+[9 9] [1 1]+[9 9] [1 1]+[10 10] [0 0]+[10 10]"},
		{"a role added", []Role{role(4, 1, 0), role(4, 1, 0), role(4, 1, 0)}, []int32{4, 4, 0}, "[4 4 0]+[0 0 0] [4 4 0]+[1 1 2] [3 3 0]+[1 1 2] [3 3 0]+[2 2 3] [2 2 0]+[2 2 3] [2 2 0]+[3 3 4] [1 1 0]+[3 3 4] [1 1 0]+[4 4 4] [0 0 0]+[4 4 4]"},
		{"a role removed", []Role{role(4, 1, 0), role(4, 1, 0), role(0, 1, 0)}, []int32{4, 4, 4}, "[4 4 4]+[0 0 0] [4 4 3]+[1 1 0] [3 3 2]+[1 1 0] [3 3 2]+[2 2 0] [2 2 1]+[2 2 0] [2 2 1]+[3 3 0] [1 1 1]+[3 3 0] [1 1 1]+[4 4 0] [0 0 0]+[4 4 0]"},
		{"all roles renamed", []Role{role(0, 1, 0), role(0, 1, 0), role(2, 1, 0), role(2, 1, 0)}, []int32{2, 2, 0, 0}, "[2 2 0 0]+[0 0 0 0] [1 1 0 0]+[0 0 2 2] [0 0 0 0]+[0 0 2 2]"},
		{"4/1 without surge", []Role{role(4, 0, 1), role(1, 0, 1)}, []int32{4, 1}, "[4 1]+[0 0] "},
		{"scaled to zero", []Role{role(0, 1, 0), role(0, 1, 0)}, []int32{3, 3}, "[3 3]+[0 0] [0 0]+[0 0]"},
		{"mixed budgets", []Role{role(4, 1, 0), role(4, 0, 1)}, []int32{4, 4}, "[4 4]+[0 0] [4 3]+[0 0] [4 3]+[1 1] [3 2]+[1 1] [3 2]+[2 2] [2 1]+[2 2] [2 1]+[3 3] [1 1]+[3 3] [1 1]+[4 3] [0 0]+[4 3] [0 0]+[4 4]"},
	} {
		c := CourseOf(rolloutOf(tt.roles, tt.old...).slice())
		var steps []string
		for _, step := range c.Steps {
			steps = append(steps, fmt.Sprintf("%v+%v", step[1], step[0]))
		}
		expect.Equalf(t, tt.want, strings.Join(append(steps, c.Stuck...), " "), "%s", tt.name)
	}
}

// A revision whose one decode group is down serves nobody for a while: it keeps the prefill groups that wait for it.
func TestARevisionThatWaitsForAGroupKeepsTheOthers(t *testing.T) {
	w := rolloutOf([]Role{{Target: 4, Surge: 1}, {Target: 1, Surge: 1}}, 4, 1)
	w.wanted, w.ready = [][]int32{{1, 1}, {4, 1}}, [][]int32{{1, 1}, {4, 0}}
	next, _ := Next(w.slice())
	expect.Equal(t, []int32{3, 1}, next[1]) // the target has one ready
}
