package rollout

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/expect"
)

// Each line of the file is a rollout: its name, a set, and the steps, "partition/replicas groups". O and N are
// ready groups of the old and the new template, o and n those that are not, M and
// m of a template in between. An edit in brackets comes before the step
// it precedes.
func TestTraces(t *testing.T) {
	traces := expect.Value(os.ReadFile("testdata/traces.txt"))(t)
	for trace := range strings.Lines(string(traces)) {
		if trace == "\n" {
			continue
		}
		words := strings.SplitN(strings.TrimSpace(trace), ": ", 3)
		name, script, want := words[0], words[1], words[2]
		t.Run(name, func(t *testing.T) {
			var told []string
			m := modelled(script)
			for _, line := range strings.Split(want, " → ") {
				words := ""
				if edit, _, ok := strings.Cut(strings.TrimPrefix(line, "["), "]"); ok {
					m.edit(edit)
					words = "[" + edit + "] "
				}
				m.round()
				expect.That(t, m.Paused || m.Running <= m.peak, "%d groups, and the peak was %d", m.Running, m.peak)
				told = append(told, words+m.String())
			}
			expect.Equal(t, want, strings.Join(told, " → "))
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
	// peak is how many groups there may be since the last edit.
	peak int32
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
	m.peak = 0
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
	if m.peak == 0 {
		m.peak = m.Peak()
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
	down, budget := r.Down(), r.Budget(5)
	expect.That(t, down == 1 && budget == 2, "got %d down of %d, want 1 of 2", down, budget)
	before := r.Next().Partition
	if r.Observed = true; before != 2 || r.Next().Partition != 1 {
		t.Errorf("the partition falls from 2 to %d, and to %d once it is seen", before, r.Next().Partition)
	}
	expect.Equalf(t, 1, r.Budget(4), "the budget: a surge group that goes counts")
}

// Leaders of a revision that is gone back to may yet be of a template that another
// implementation made for it. Until the StatefulSet controller tells, they look done, and
// the surge group that was lent them went, and came again once it told.
func TestSurgeGroupsStayUntilTheTemplateWasSeen(t *testing.T) {
	done := Place{Ready: true, Updated: true}
	r := State{Replicas: 2, Running: 3, Partition: 2, Applied: 2, Surge: 1, Places: numbered(done, done)}
	expect.Equalf(t, Course{Partition: 2, Replicas: 3}, r.Next(), "before")
	r.Observed = true
	expect.Equalf(t, Course{Partition: 2, Replicas: 2}, r.Next(), "after")
	r.Observed, r.Running, r.Applied = false, 5, 4
	r.Places = numbered(done, done, Place{}, done, done)
	expect.Equalf(t, Course{Partition: 2, Replicas: 2}, r.Next(), "scaled")
}

// Either number alone lets a rollout proceed. If there is none, one group surges.
func TestBudget(t *testing.T) {
	of := func(surge, unavailable string) *lwsv1.RollingUpdateConfiguration {
		return &lwsv1.RollingUpdateConfiguration{MaxSurge: intstr.Parse(surge), MaxUnavailable: intstr.Parse(unavailable)}
	}
	for name, tt := range map[string]struct {
		config                       *lwsv1.RollingUpdateConfiguration
		replicas, surge, unavailable int32
	}{
		"nothing is said":              {nil, 4, 1, 0},
		"nothing is allowed":           {of("0", "0"), 4, 1, 0},
		"a surge":                      {of("2", "0"), 4, 2, 0},
		"unavailable groups":           {of("0", "2"), 4, 0, 2},
		"both":                         {of("3", "2"), 4, 3, 2},
		"more than there are":          {of("9", "8"), 4, 9, 8},
		"rounded up and down":          {of("30%", "30%"), 5, 2, 1},
		"rounded down to nothing":      {of("0", "10%"), 5, 1, 0},
		"rounded down beside a surge":  {of("10%", "10%"), 5, 1, 0},
		"percentages of no groups":     {of("50%", "50%"), 0, 1, 0},
		"what admission would refuse":  {of("x", "-1"), 4, 1, 0},
		"a surge beside what is wrong": {of("2", "x"), 4, 2, 0},
	} {
		surge, unavailable := Budget(tt.config, tt.replicas)
		expect.Equalf(t, [2]int32{tt.surge, tt.unavailable}, [2]int32{surge, unavailable}, "%s", name)
	}
}

func TestAdmit(t *testing.T) {
	for name, tt := range map[string]struct {
		room            Room
		gated, admitted int
	}{
		"a new set":                               {Room{Allowed: 3}, 3, 3},
		"a group terminates":                      {Room{Allowed: 3, Active: 2, Holding: 1}, 1, 0},
		"its last pod is gone":                    {Room{Allowed: 3, Active: 2}, 1, 1},
		"the surge of a rollout":                  {Room{Allowed: 3, Active: 1, Holding: 1}, 2, 1},
		"a surge leader runs, one terminates":     {Room{Allowed: 3, Active: 2, Holding: 1}, 1, 0},
		"a larger set":                            {Room{Allowed: 5, Active: 3}, 2, 2},
		"a smaller set still has too many":        {Room{Allowed: 2, Active: 4}, 1, 0},
		"a smaller set has room":                  {Room{Allowed: 4, Active: 1, Holding: 2}, 1, 1},
		"at once":                                 {Room{Allowed: 3, Active: 2, Holding: 1, Immediate: true}, 1, 1},
		"at once, but one is stopped for good":    {Room{Allowed: 3, Active: 1, Holding: 2, Stopped: 1, Immediate: true}, 2, 1},
		"a group that is stopped keeps its place": {Room{Allowed: 3, Active: 2, Holding: 1, Stopped: 1}, 1, 0},
	} {
		expect.Equalf(t, tt.admitted, tt.room.Admit(tt.gated), "%s: admitted of %d", name, tt.gated)
	}
}

// A stopped group goes only where those that run take its place.
func TestSurplus(t *testing.T) {
	for name, tt := range map[string]struct {
		room Room
		want int
	}{
		"it keeps its place":               {Room{Allowed: 3, Active: 2, Holding: 1, Stopped: 1}, 0},
		"all are stopped":                  {Room{Allowed: 2, Holding: 2, Stopped: 2}, 0},
		"a smaller set":                    {Room{Allowed: 2, Active: 1, Holding: 2, Stopped: 2}, 1},
		"a smaller set with too many":      {Room{Allowed: 1, Active: 3, Holding: 1, Stopped: 1}, 1},
		"what terminates takes none of it": {Room{Allowed: 3, Active: 2, Holding: 2, Stopped: 1}, 0},
	} {
		expect.Equalf(t, tt.want, tt.room.Surplus(), "%s", name)
	}
}

// The laws of replacement after the end of groups: groups that hold room never become more than are allowed, all room
// that is free is used at once, and the set is never held below its replicas.
func TestLawsOfReplacement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := func(name string) int32 { return rapid.Int32Range(0, 12).Draw(t, name) }
		replicas, surge := count("replicas"), count("surge")
		room := Room{Allowed: replicas + surge, Active: count("active"), Holding: count("holding")}
		gated := count("gated")
		admitted := int32(room.Admit(int(gated)))
		deferred, now := gated-admitted, room.Active+room.Holding+admitted
		expect.That(t, admitted >= 0 && deferred >= 0, "%d are admitted of %d", admitted, gated)
		expect.That(t, admitted == 0 || now <= room.Allowed, "%d groups hold room, and %d may", now, room.Allowed)
		expect.That(t, deferred == 0 || now >= room.Allowed,
			"%d groups wait, %d hold room, and %d may", deferred, now, room.Allowed)
		expect.That(t, deferred == 0 || now >= replicas,
			"%d groups hold room below %d replicas, and %d wait", now, replicas, deferred)
	})
}
