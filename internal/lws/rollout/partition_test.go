package rollout

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// traces are rollouts told line by line: "partition/replicas groups". O and N are
// ready groups of the old and the new template, o and n those that are not, M and
// m of a template in between. An edit in brackets comes before the step
// it precedes.
var traces = map[string]struct{ script, want string }{
	"A": {"N4 mu1 ms0", "[new] 4/4 OOOO → 3/4 OOOn → 2/4 OOnN → 1/4 OnNN → 0/4 nNNN → 0/4 NNNN"},
	"B": {"N4 mu2 ms0", "[new] 4/4 OOOO → 2/4 OOnn → 0/4 nnNN → 0/4 NNNN"},
	"C": {"N4 mu10 ms0", "[new] 4/4 OOOO → 0/4 nnnn → 0/4 NNNN"},
	"D": {"N4 mu1 ms1", "[new] 4/5 OOOOn → 2/5 OOnnN → 0/5 nnNNN → 0/4 NNNN"},
	"E": {"N4 mu0 ms1", "[new] 4/5 OOOOn → 3/5 OOOnN → 2/5 OOnNN → 1/5 OnNNN → 0/5 nNNNN → 0/4 NNNN"},
	"F": {"N4 mu2 ms2", "[new] 4/6 OOOOnn → 0/6 nnnnNN → 0/4 NNNN"},
	"G": {"N4 mu1 ms4", "[new] 4/7 OOOOnnn → 0/7 nnnnNNN → 0/4 NNNN"},
	"H": {"N10 mu2 ms3", "[new] 10/13 OOOOOOOOOOnnn → 5/13 OOOOOnnnnnNNN → 0/13 nnnnnNNNNNNNN → 0/10 NNNNNNNNNN"},
	"I": {"N2 mu1 ms2", "[new] 2/3 OOn → 0/3 nnN → 0/2 NN"},
	"J": {"N4 mu1 ms0", "[new] 4/4 OOOO → 3/4 OOOn → [N6] 3/6 OOONnn → 2/6 OOnNNN → 1/6 OnNNNN → 0/6 nNNNNN → 0/6 NNNNNN"},
	"K": {"N6 mu1 ms0", "[new] 6/6 OOOOOO → 5/6 OOOOOn → [N3] 3/3 OOO → 2/3 OOn → 1/3 OnN → 0/3 nNN → 0/3 NNN"},
	"L": {"N4 mu1 ms0", "[new N6] 4/6 OOOOnn → 3/6 OOOnNN → 2/6 OOnNNN → 1/6 OnNNNN → 0/6 nNNNNN → 0/6 NNNNNN"},
	"M": {"N6 mu1 ms2", "[new N3] 3/5 OOOnn → 0/5 nnnNN → 0/3 NNN"},
	"N": {"N6 mu1 ms0 U4", "[new] 6/6 OOOOOO → 5/6 OOOOOn → 4/6 OOOOnN → 4/6 OOOONN → 4/6 OOOONN → [U2] 3/6 OOOnNN → 2/6 OOnNNN → " +
		"2/6 OONNNN → 2/6 OONNNN → [U0] 1/6 OnNNNN → 0/6 nNNNNN → 0/6 NNNNNN → 0/6 NNNNNN"},
	"O": {"N3 mu1 ms1 U2", "[new] 3/4 OOOn → 2/4 OOnN → 2/4 OONN → 2/4 OONN → [U0] 0/4 nnNN → 0/3 NNN"},
	"P": {"N4 mu2 ms0 OoOO", "[new] 4/4 OoOO → 3/4 OoOn → 1/4 OnnN → 0/4 nNNN → 0/4 NNNN"},
	"Q": {"N4 mu1 ms0 oooo", "[new] 4/4 oooo → 3/4 ooon → 2/4 oonN → 1/4 onNN → 0/4 nNNN → 0/4 NNNN"},
	"R": {"N4 mu1 ms0", "[broken] 4/4 OOOO → 3/4 OOOn → 3/4 OOOn → 3/4 OOOn"},
	"S": {"N4 mu1 ms0", "[new] 4/4 OOOO → 3/4 OOOn → 2/4 OOnN → [new] 4/4 OOMM → 3/4 OOMn → 2/4 OOnN → 1/4 OnNN → 0/4 nNNN → 0/4 NNNN"},
	"T": {"N4 mu1 ms2 slow", "[new] 4/6 OOOOnn → 3/6 OOOnnn → [N6] 3/8 OOOnNNnn → 3/8 OOONNNnn → 0/8 nnnNNNNN → 0/8 nnnNNNNN → 0/6 NNNNNN"},

	"broken groups that use up the budget hold the others":               {"N4 mu2 ms0 OooO", "[new] 4/4 OooO → 4/4 OooO → [healed] 2/4 OOnn → 0/4 nnNN"},
	"a rollout out of a broken template":                                 {"N4 mu2 ms0", "[broken] 4/4 OOOO → 2/4 OOnn → 2/4 OOnn → [new] 4/4 OOmm → 2/4 OOnn → 0/4 nnNN → 0/4 NNNN"},
	"groups made at a broken template are replaced first":                {"N4 mu1 ms0", "[broken] 4/4 OOOO → 3/4 OOOn → [N6] 3/6 OOOnnn → [new] 6/6 OOOmmm → 5/6 OOOmmn → 4/6 OOOmnN → 3/6 OOOnNN → 2/6 OOnNNN"},
	"a set that is scaled down at rest lends no surge":                   {"N4 mu0 ms1 OOoO", "[N3] 0/3 OOo → 0/3 OOo"},
	"a partition that rises holds what is below it":                      {"N4 mu1 ms0", "[new] 4/4 OOOO → 3/4 OOOn → [U2] 2/4 OOnN → [U3] 3/4 OONN → [U0] 1/4 OnNN → 0/4 nNNN"},
	"a group that breaks at rest above a partition is lent no surge":     {"N3 mu1 ms1 U2 OOo", "2/3 OOo → 2/3 OOo"},
	"a paused rollout finishes what was granted":                         {"N4 mu2 ms0", "[new] 4/4 OOOO → [pause] 4/4 OOOO → [resume] 2/4 OOnn → [pause] 2/4 OONN → 2/4 OONN"},
	"a set is scaled down while paused":                                  {"N4 mu1 ms0", "[new] 4/4 OOOO → 3/4 OOOn → [pause N2] 2/2 OO → 2/2 OO → [resume] 1/2 On → 0/2 nN"},
	"surge groups stay while paused, and no others come":                 {"N4 mu1 ms1", "[new] 4/5 OOOOn → [pause] 4/5 OOOON → [ms3] 4/5 OOOON → [resume] 2/7 OOnnNnn → 0/5 nnNNN"},
	"what is changed while paused waits":                                 {"N4 mu1 ms0", "[pause new] 0/4 OOOO → [new] 0/4 OOOO → [resume] 4/4 OOOO → 3/4 OOOn"},
	"a partition that falls while paused waits":                          {"N4 mu1 ms0 U2", "[new] 4/4 OOOO → 3/4 OOOn → [pause U0] 3/4 OOON → 3/4 OOON → [resume] 2/4 OOnN → 1/4 OnNN"},
	"a user who asks for nothing to be away and no surge gets one group": {"N2 mu1 ms0", "[new] 2/2 OO → 1/2 On → 0/2 nN → 0/2 NN"},
}

func TestTraces(t *testing.T) {
	for name, trace := range traces {
		t.Run(name, func(t *testing.T) {
			var told []string
			m := modelled(trace.script)
			for _, line := range strings.Split(trace.want, " → ") {
				words := ""
				if edit, _, ok := strings.Cut(strings.TrimPrefix(line, "["), "]"); ok {
					m.edit(edit)
					words = "[" + edit + "] "
				}
				m.round()
				told = append(told, words+m.String())
			}
			if diff := cmp.Diff(trace.want, strings.Join(told, " → ")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// model is a set and a StatefulSet controller that honours maxUnavailable. A new
// group needs one round to become ready, or two when slow.
type model struct {
	State
	template int
	groups   []modelGroup
	slow     int
	// broken templates never become ready.
	broken  map[int]bool
	pending int
}

type modelGroup struct {
	template, age int
	broken        bool
}

func modelled(script string) *model {
	m := &model{slow: 1, broken: map[int]bool{}}
	groups := ""
	for _, word := range strings.Fields(script) {
		switch {
		case strings.Trim(word, "Oo") == "":
			groups = word
		case word == "slow":
			m.slow = 2
		default:
			m.set(word)
		}
	}
	m.Running, m.Applied, m.Partition = m.Replicas, m.Replicas, m.Keep
	for i := range m.Replicas {
		m.groups = append(m.groups, modelGroup{age: 9, broken: groups != "" && groups[i] == 'o'})
	}
	return m
}

func (m *model) set(word string) {
	for key, field := range map[string]*int32{"mu": &m.Unavailable, "ms": &m.Surge, "N": &m.Replicas, "U": &m.Keep} {
		if number, ok := strings.CutPrefix(word, key); ok {
			n, _ := strconv.Atoi(number)
			*field = int32(n)
		}
	}
}

func (m *model) edit(words string) {
	for _, word := range strings.Fields(words) {
		switch word {
		case "new", "broken":
			m.pending++
			m.broken[m.template+1] = word == "broken"
		case "pause":
			m.Paused = true
		case "resume":
			m.Paused = false
		case "healed":
			for i := range m.groups {
				m.groups[i].broken = false
			}
		default:
			m.set(word)
		}
	}
}

// round has the groups come up, the set decide, and the StatefulSet controller act.
func (m *model) round() {
	for i := range m.groups {
		m.groups[i].age++
	}
	m.Changed, m.Observed = m.pending > 0 && !m.Paused, true
	m.Places = nil
	for i := range m.groups {
		m.Places = append(m.Places, m.place(i))
	}
	c := m.Next()
	if m.Changed {
		m.template, m.pending = m.template+m.pending, 0
	}
	m.Partition, m.Running, m.Applied = c.Partition, c.Replicas, m.Replicas
	m.control()
}

func (m *model) ready(i int) bool {
	g := m.groups[i]
	return !g.broken && !m.broken[g.template] && g.age >= m.slow
}

func (m *model) place(i int) Place {
	updated := m.groups[i].template == m.template && !m.Changed // nothing counts as updated at a template just made
	return Place{Index: int32(i), Ready: m.ready(i), Updated: updated, Outdated: !updated}
}

func (m *model) control() {
	m.groups = m.groups[:min(len(m.groups), int(m.Running))]
	for len(m.groups) < int(m.Running) {
		m.groups = append(m.groups, modelGroup{template: m.template})
	}
	// Groups that are broken anyway are replaced at any rate: by the StatefulSet
	// controller or directly.
	for i := len(m.groups) - 1; i >= int(m.Partition); i-- {
		if m.groups[i].template != m.template {
			m.groups[i] = modelGroup{template: m.template}
		}
	}
}

func (m *model) String() string {
	var groups strings.Builder
	for i, g := range m.groups {
		letter := "O"
		switch {
		case g.template == m.template && m.template > 0:
			letter = "N"
		case g.template > 0:
			letter = "M"
		}
		if !m.ready(i) {
			letter = strings.ToLower(letter)
		}
		groups.WriteString(letter)
	}
	return fmt.Sprintf("%d/%d %s", m.Partition, m.Running, groups.String())
}

// numbered returns places with the indices from zero on.
func numbered(places ...Place) []Place {
	for i := range places {
		places[i].Index = int32(i)
	}
	return places
}

// A group that was granted may be taken at any moment, however well it looks. No more is granted
// until the StatefulSet controller has seen the last step.
func TestWhatIsGrantedCountsAsDownUntilItIsDone(t *testing.T) {
	old, done := Place{Outdated: true, Ready: true}, Place{Ready: true, Updated: true}
	r := State{Replicas: 4, Running: 5, Applied: 4, Partition: 2, Unavailable: 1, Surge: 1, Places: numbered(old, old, old, done, done)}
	if down, budget := r.Down(), r.Budget(5); down != 1 || budget != 2 {
		t.Errorf("got %d down of %d, want 1 of 2", down, budget)
	}
	before := r.Next().Partition
	if r.Observed = true; before != 2 || r.Next().Partition != 1 {
		t.Errorf("the partition falls from 2 to %d, and to %d once it is seen", before, r.Next().Partition)
	}
	if budget := r.Budget(4); budget != 1 {
		t.Errorf("a surge group that goes counts: the budget is %d", budget)
	}
}

// Leaders of a revision that is gone back to may yet be of a template that another
// implementation made for it. Until the StatefulSet controller tells, they look done, and
// the surge group that was lent them went, and came again once it told.
func TestSurgeGroupsStayUntilTheTemplateWasSeen(t *testing.T) {
	done := Place{Ready: true, Updated: true}
	r := State{Replicas: 2, Running: 3, Partition: 2, Applied: 2, Surge: 1, Places: numbered(done, done)}
	if got := r.Next(); got != (Course{Partition: 2, Replicas: 3}) {
		t.Errorf("before: got %+v", got)
	}
	r.Observed = true
	if got := r.Next(); got != (Course{Partition: 2, Replicas: 2}) {
		t.Errorf("after: got %+v", got)
	}
	r.Observed, r.Running, r.Applied = false, 5, 4
	r.Places = numbered(done, done, Place{}, done, done)
	if got := r.Next(); got != (Course{Partition: 2, Replicas: 2}) {
		t.Errorf("scaled: got %+v", got)
	}
}
