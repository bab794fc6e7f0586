package model_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/model"
)

var update = flag.Bool("update", false, "write the shortest traces to testdata")

// history is the behaviour of Kubernetes releases. Steps is the length of the shortest trace that
// loses data, or zero.
var history = []struct {
	name    string
	pods    model.Evidence
	kubelet model.Kubelet
	steps   int
}{
	{"cache alone, before 1.16", model.Cache, model.RefusesTerminating, 7},
	{"a live list per PVC, kubelets that refuse terminating PVCs", model.ListPerPVC, model.RefusesTerminating, 0},
	{"a live list per PVC, kubelets of today", model.ListPerPVC, model.RefusesUnprotected, 7},
	{"a live list per batch, kubelets that refuse terminating PVCs", model.ListPerBatch, model.RefusesTerminating, 8},
	{"a live list per batch, kubelets of today", model.ListPerBatch, model.RefusesUnprotected, 7},
}

// worlds are the faults, and the least number of states that a search visits.
var worlds = map[string]struct {
	faults model.Faults
	least  int
}{
	"in order": {model.InOrder, 70}, "crashes": {model.Crashes, 4000}, "touched": {model.Touched, 200}, "bad": {model.Bad, 2000}, "again": {model.Again, 500}, "two": {model.Two, 500},
}

var shipped = []struct {
	name   string
	rules  model.Rules
	worlds string
}{
	{"barrier beside, kubelets of today", model.BarrierBeside(model.RefusesUnprotected), "in order, crashes, touched"},
	{"barrier beside, old kubelets", model.BarrierBeside(model.RefusesTerminating), "in order, crashes, touched"},
	{"barrier alone, kubelets of today", model.BarrierAlone(model.RefusesUnprotected), "in order, bad, again, two"},
	{"barrier alone, old kubelets", model.BarrierAlone(model.RefusesTerminating), "in order, bad, again, two"},
	{"record alone", model.Recorded(), "in order, bad, again"},
	{"record beside", model.RecordedBeside(), "in order, crashes, touched"},
	{"strict", model.Strict(), "in order, bad, again, two"},
}

// removals remove one rule each.
var removals = []struct {
	name  string
	rule  func(*model.Rules)
	modes string
}{
	{"without a barrier", func(r *model.Rules) { r.Barrier = false }, "beside, alone"},
	{"B judged while P is there", func(r *model.Rules) { r.WaitsForPods = false }, "beside, alone"},
	{"pods read before the PVC was seen terminating", func(r *model.Rules) { r.ReadsLast = false }, "beside, alone"},
	{"by a cache that is not as fresh", func(r *model.Rules) { r.Reaches = false }, "beside, alone"},
	{"writes without preconditions", func(r *model.Rules) { r.Preconditions = false }, "beside, alone, record, strict"},
	{"a conflict written again", func(r *model.Rules) { r.JudgesAgain = false }, "beside, alone"},
	{"an error taken for no user", func(r *model.Rules) { r.ErrorsMeanInUse = false }, "beside, alone"},
	{"a kubelet that refuses nothing", func(r *model.Rules) { r.Kubelet = model.RefusesNothing }, "beside, alone"},
	{"a record after the bind", func(r *model.Rules) { r.Start = model.RecordAfter }, "record"},
	{"a record onto any version", func(r *model.Rules) { r.RecordPreconditions = false }, "record, strict"},
	{"a record removed before the pod is gone", func(r *model.Rules) { r.RecordOutlives = false }, "record, strict"},
}

var modes = map[string]model.Rules{
	"beside": model.BarrierBeside(model.RefusesUnprotected), "alone": model.BarrierAlone(model.RefusesUnprotected),
	"record": model.Recorded(), "strict": model.Strict(),
}

// lossy are the worlds in which a removed rule may lose data, the smallest first.
var lossy = []model.Faults{model.InOrder, model.Errors, model.Crashes, model.Touches, model.Bad, model.Again}

func lossOf(rules model.Rules) (r model.Result) {
	for _, faults := range lossy {
		if r = model.Search(rules, faults); !r.Safe() {
			break
		}
	}
	return r
}

func TestShippedModesAreSafe(t *testing.T) {
	for _, tt := range shipped {
		for _, name := range strings.Split(tt.worlds, ", ") {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				safe(t, model.Search(tt.rules, worlds[name].faults), worlds[name].least)
			})
		}
	}
}

func safe(t *testing.T, r model.Result, least int) {
	t.Helper()
	expect.Must(t, r.Safe(), "data is lost:\n%s", numbered(r.Trace))
	expect.Must(t, len(r.Pinned) == 0, "an unused PVC stays forever:\n%s", numbered(r.Pinned))
	expect.That(t, r.States >= least, "only %d states", r.States)
	t.Logf("%d states", r.States)
}

// TestEveryRuleIsNeeded keeps the shortest traces in testdata.
func TestEveryRuleIsNeeded(t *testing.T) {
	var traces strings.Builder
	for _, tt := range history {
		r := model.Search(model.Rules{BuiltIn: true, Pods: tt.pods, Kubelet: tt.kubelet}, model.InOrder)
		expect.Equalf(t, tt.steps, len(r.Trace), "%s: steps that lose data", tt.name)
		fmt.Fprintf(&traces, "%s\n%s\n", tt.name, numbered(r.Trace))
	}
	for _, tt := range removals {
		for _, mode := range strings.Split(tt.modes, ", ") {
			rules := modes[mode]
			tt.rule(&rules)
			r := lossOf(rules)
			expect.That(t, !r.Safe(), "%s, %s: safe in %d states", mode, tt.name, r.States)
			fmt.Fprintf(&traces, "%s, %s\n%s\n", mode, tt.name, numbered(r.Trace))
		}
	}
	golden(t, "traces.txt", traces.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		expect.OK(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want := expect.Value(os.ReadFile(path))(t)
	expect.Equalf(t, string(want), got, "the shortest traces changed")
}

func numbered(steps []string) string {
	var b strings.Builder
	for i, step := range steps {
		fmt.Fprintf(&b, "%3d  %s\n", i+1, step)
	}
	return b.String()
}

// TestModeHoldIsSafe checks that no PVC is deleted that a workload wants, and that every other PVC
// is deleted in the end if a user or the garbage collector asked for it.
func TestModeHoldIsSafe(t *testing.T) {
	for name, world := range map[string]struct {
		faults model.HoldFaults
		least  int
	}{
		"in order": {model.HoldInOrder, 5000}, "crashes": {model.HoldCrashes, 3000}, "errors, and no policies": {model.HoldErrors, 1000},
		"a second PVC": {model.HoldAgain, 1000}, "two operators": {model.HoldTwo, 500},
	} {
		t.Run(name, func(t *testing.T) { safe(t, model.SearchHold(model.Holding(), world.faults), world.least) })
	}
}

// TestEveryRuleOfHoldIsNeeded keeps the shortest traces in testdata. Without most rules a wanted
// PVC is deleted. Without some rules an unwanted PVC stays forever.
func TestEveryRuleOfHoldIsNeeded(t *testing.T) {
	var traces strings.Builder
	for _, tt := range []struct {
		name   string
		faults model.HoldFaults
		remove func(*model.HoldRules)
		pins   bool
	}{
		{"nothing refuses", model.HoldInOrder, func(r *model.HoldRules) { r.Refuses = false }, false},
		{"a webhook refuses", model.HoldInOrder, func(r *model.HoldRules) { r.Atomic = false }, false},
		{"users remove holds", model.HoldInOrder, func(r *model.HoldRules) { r.Guards = false }, false},
		{"a release or a wish counts for every UID", model.HoldAgain, func(r *model.HoldRules) { r.NamesUID = false }, false},
		{"a hold ends with its last holder", model.HoldInOrder, func(r *model.HoldRules) { r.Grace = false }, false},
		{"an error taken for no workload", model.HoldErrors, func(r *model.HoldRules) { r.ErrorsHold = false }, false},
		{"writes without preconditions", model.HoldCrashes, func(r *model.HoldRules) { r.Preconditions = false }, false},
		{"a cache ends a hold", model.HoldInOrder, func(r *model.HoldRules) { r.ReadsLive = false }, false},
		{"holds stay on terminating PVCs", model.HoldErrors, func(r *model.HoldRules) { r.Yields = false }, true},
		{"a refused DELETE is not sent again", model.HoldInOrder, func(r *model.HoldRules) { r.Replays = false }, true},
		{"nor after the hold is removed", model.HoldCrashes, func(r *model.HoldRules) { r.ReplaysLater = false }, true},
	} {
		rules := model.Holding()
		tt.remove(&rules)
		r := model.SearchHold(rules, tt.faults)
		trace := r.Trace
		if tt.pins {
			trace = r.Pinned
		}
		expect.That(t, len(trace) > 0 && tt.pins == r.Safe(),
			"%s: safe %t, pinned %t in %d states", tt.name, r.Safe(), len(r.Pinned) > 0, r.States)
		fmt.Fprintf(&traces, "%s\n%s\n", tt.name, numbered(trace))
	}
	golden(t, "holds.txt", traces.String())
}

// TestDrainsAreSafe checks that drains take one group at a time, each once, and end.
func TestDrainsAreSafe(t *testing.T) {
	for name, beside := range map[string]model.Beside{
		"alone": {}, "a rollout": {Rollout: true}, "scaling": {Scaling: true}, "a budget": {Budget: true}, "leaders first": {LeaderReady: true},
	} {
		t.Run(name, func(t *testing.T) { safe(t, model.SearchDrains(model.Draining(), beside), 100) })
	}
}

// TestEveryRuleOfDrainsIsNeeded keeps the shortest traces in testdata.
func TestEveryRuleOfDrainsIsNeeded(t *testing.T) {
	var traces strings.Builder
	for _, tt := range []struct {
		name   string
		beside model.Beside
		remove func(*model.DrainRules)
	}{
		{"a budget of maxUnavailable 1", model.Beside{LeaderReady: true}, func(r *model.DrainRules) { r.Integer = false }},
		{"lower before pods are gone", model.Beside{Scaling: true}, func(r *model.DrainRules) { r.LastsLong = false }},
		{"open in a rollout", model.Beside{Rollout: true}, func(r *model.DrainRules) { r.Closes = false }},
		{"lower for a second group", model.Beside{}, func(r *model.DrainRules) { r.OneGroup = false }},
		{"beside a budget of a user", model.Beside{Budget: true}, func(r *model.DrainRules) { r.GivesWay = false }},
		{"names are not held", model.Beside{}, func(r *model.DrainRules) { r.Holds = false }},
		{"a worker is replaced alone", model.Beside{}, func(r *model.DrainRules) { r.Gates = false }},
	} {
		rules := model.Draining()
		tt.remove(&rules)
		r := model.SearchDrains(rules, tt.beside)
		trace := append(r.Trace, r.Pinned...)
		expect.That(t, len(trace) > 0, "%s: safe in %d states", tt.name, r.States)
		fmt.Fprintf(&traces, "%s\n%s\n", tt.name, numbered(trace))
	}
	golden(t, "drains.txt", traces.String())
}
