package model_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep.dev/lockstep/test/model"
)

var update = flag.Bool("update", false, "write the shortest traces to testdata")

func builtIn(by model.Evidence, kubelet model.Kubelet) model.Rules {
	return model.Rules{BuiltIn: true, Pods: by, Kubelet: kubelet}
}

func with(r model.Rules, change func(*model.Rules)) model.Rules {
	change(&r)
	return r
}

// history is what others do, and did. Steps is the length of the shortest way to
// lose data, or zero where there is none.
var history = []struct {
	name  string
	rules model.Rules
	steps int
}{
	{"1 cache alone, before 1.16", builtIn(model.Cache, model.RefusesTerminating), 7},
	{"2 a live list per claim, and kubelets that refuse what is terminating", builtIn(model.ListPerClaim, model.RefusesTerminating), 0},
	{"3 a live list per claim, and kubelets of today", builtIn(model.ListPerClaim, model.RefusesUnprotected), 7},
	{"4 a live list per batch, and kubelets that refuse what is terminating", builtIn(model.ListPerBatch, model.RefusesTerminating), 8},
	{"5 a live list per batch, and kubelets of today", builtIn(model.ListPerBatch, model.RefusesUnprotected), 7},
	{"9 a webhook on bindings", with(builtIn(model.ListPerClaim, model.RefusesUnprotected), func(r *model.Rules) { r.Start = model.BindingWebhook }), 8},
	{"10 a webhook that lists before P goes", with(builtIn(model.ListPerClaim, model.RefusesUnprotected), func(r *model.Rules) { r.UpdateWebhook = true }), 8},
}

// shipped is every mode that there is, and the worlds that it is put in: all that can be
// searched to the end in a moment.
var shipped = []struct {
	name   string
	rules  model.Rules
	worlds []string
}{
	{"6 barrier beside the built-in, kubelets of today", model.BarrierBeside(model.RefusesUnprotected), []string{inOrder, bad}},
	{"6 barrier beside the built-in, old kubelets", model.BarrierBeside(model.RefusesTerminating), []string{inOrder, bad}},
	{"6 barrier beside the built-in, probing", model.Probing(model.BarrierBeside(model.RefusesUnprotected)), []string{inOrder}},
	{"7 barrier alone, kubelets of today", model.BarrierAlone(model.RefusesUnprotected), []string{inOrder, bad, again, two}},
	{"7 barrier alone, old kubelets", model.BarrierAlone(model.RefusesTerminating), []string{inOrder, bad, again, two}},
	{"7 barrier alone, probing", model.Probing(model.BarrierAlone(model.RefusesUnprotected)), []string{inOrder, twoLives}},
	{"8 use record before the bind, alone", model.Recorded(), []string{inOrder, bad, again, two}},
	{"8 use record before the bind, beside the built-in", model.RecordedBeside(), []string{inOrder, bad}},
	{"8 strict: use record under a scheduling gate", model.Strict(), []string{inOrder, bad, again, two}},
}

const (
	inOrder  = "order alone"
	bad      = "crashes, errors, conflicts and a second life"
	again    = "pods and attempts that come again"
	two      = "two of ours"
	twoLives = "a second life, and lists that fail"
)

// worlds are what may go wrong, and how many states a search goes through at least.
var worlds = map[string]struct {
	faults model.Faults
	least  int
}{
	inOrder: {model.OneLife, 70}, bad: {model.Bad, 4000}, again: {model.Again, 500}, two: {model.Two, 500}, twoLives: {model.TwoLives, 500},
}

// removed is every mode with one rule taken away.
var removed = []struct {
	name  string
	rules model.Rules
}{
	{"beside, without a barrier", with(model.BarrierBeside(model.RefusesUnprotected), func(r *model.Rules) { r.Barrier = false })},
	{"beside, B judged while P is there", with(model.BarrierBeside(model.RefusesUnprotected), func(r *model.Rules) { r.WaitsForPods = false })},
	{"beside, by the cache", with(model.BarrierBeside(model.RefusesUnprotected), func(r *model.Rules) { r.Ours = model.Cache })},
	{"beside, read before the claim was seen terminating", with(model.BarrierBeside(model.RefusesUnprotected), func(r *model.Rules) { r.Ours = model.ListPerBatch })},
	{"beside, asked how far pods are before the claim was seen terminating", with(model.Probing(model.BarrierBeside(model.RefusesUnprotected)), func(r *model.Rules) { r.ProbesLast = false })},
	{"beside, by memory that is not as far", with(model.Probing(model.BarrierBeside(model.RefusesUnprotected)), func(r *model.Rules) { r.Reaches = false })},
	{"beside, writes without preconditions", with(model.BarrierBeside(model.RefusesUnprotected), func(r *model.Rules) { r.Preconditions = false })},
	{"beside, a conflict written again", with(model.BarrierBeside(model.RefusesUnprotected), func(r *model.Rules) { r.LooksAgain = false })},
	{"beside, an error taken for no user", with(model.BarrierBeside(model.RefusesUnprotected), func(r *model.Rules) { r.ErrorsMeanInUse = false })},
	{"beside, a kubelet that refuses nothing", with(model.BarrierBeside(model.RefusesUnprotected), func(r *model.Rules) { r.Kubelet = model.RefusesNothing })},
	{"alone, without a barrier", with(model.BarrierAlone(model.RefusesUnprotected), func(r *model.Rules) { r.Barrier = false })},
	{"alone, B judged while P is there", with(model.BarrierAlone(model.RefusesUnprotected), func(r *model.Rules) { r.WaitsForPods = false })},
	{"alone, by the cache", with(model.BarrierAlone(model.RefusesUnprotected), func(r *model.Rules) { r.Ours = model.Cache })},
	{"alone, read before the claim was seen terminating", with(model.BarrierAlone(model.RefusesUnprotected), func(r *model.Rules) { r.Ours = model.ListPerBatch })},
	{"alone, asked how far pods are before the claim was seen terminating", with(model.Probing(model.BarrierAlone(model.RefusesUnprotected)), func(r *model.Rules) { r.ProbesLast = false })},
	{"alone, by memory that is not as far", with(model.Probing(model.BarrierAlone(model.RefusesUnprotected)), func(r *model.Rules) { r.Reaches = false })},
	{"alone, writes without preconditions", with(model.BarrierAlone(model.RefusesUnprotected), func(r *model.Rules) { r.Preconditions = false })},
	{"alone, a conflict written again", with(model.BarrierAlone(model.RefusesUnprotected), func(r *model.Rules) { r.LooksAgain = false })},
	{"alone, an error taken for no user", with(model.BarrierAlone(model.RefusesUnprotected), func(r *model.Rules) { r.ErrorsMeanInUse = false })},
	{"alone, a kubelet that refuses nothing", with(model.BarrierAlone(model.RefusesUnprotected), func(r *model.Rules) { r.Kubelet = model.RefusesNothing })},
	{"record, written after the bind", with(model.Recorded(), func(r *model.Rules) { r.Start = model.RecordAfter })},
	{"record, release without preconditions", with(model.Recorded(), func(r *model.Rules) { r.Preconditions = false })},
	{"record, neither write with preconditions", with(model.Recorded(), func(r *model.Rules) { r.Preconditions, r.RecordPreconditions = false, false })},
	{"record, written onto any version", with(model.Recorded(), func(r *model.Rules) { r.RecordPreconditions = false })},
	{"record, dropped before the pod is gone", with(model.Recorded(), func(r *model.Rules) { r.RecordOutlives = false })},
	{"strict, release without preconditions", with(model.Strict(), func(r *model.Rules) { r.Preconditions = false })},
	{"strict, neither write with preconditions", with(model.Strict(), func(r *model.Rules) { r.Preconditions, r.RecordPreconditions = false, false })},
	{"strict, written onto any version", with(model.Strict(), func(r *model.Rules) { r.RecordPreconditions = false })},
	{"strict, dropped before the pod is gone", with(model.Strict(), func(r *model.Rules) { r.RecordOutlives = false })},
}

// removedAgain is what is needed only where pods and attempts to bind come again.
var removedAgain = []struct {
	name  string
	rules model.Rules
}{}

func TestHistory(t *testing.T) {
	for _, tt := range history {
		t.Run(tt.name, func(t *testing.T) {
			r := model.Search(tt.rules, model.OneLife)
			if len(r.Trace) != tt.steps {
				t.Errorf("data is lost in %d steps, want %d:\n%s", len(r.Trace), tt.steps, numbered(r.Trace))
			}
			t.Logf("%d states", r.States)
		})
	}
}

func TestShippedModesAreSafe(t *testing.T) {
	for _, tt := range shipped {
		for _, name := range tt.worlds {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				r := model.Search(tt.rules, worlds[name].faults)
				if !r.Safe() {
					t.Fatalf("data is lost:\n%s", numbered(r.Trace))
				}
				if len(r.Pinned) > 0 {
					t.Fatalf("a claim that nobody uses stays for ever:\n%s", numbered(r.Pinned))
				}
				if r.States < worlds[name].least {
					t.Errorf("%d states: the search has gone blind", r.States)
				}
				t.Logf("%d states", r.States)
			})
		}
	}
}

// TestEveryRuleIsNeeded keeps the shortest traces in testdata: a rule that can go
// unnoticed is no rule, and a trace that changes says that the protocol did.
func TestEveryRuleIsNeeded(t *testing.T) {
	var told strings.Builder
	tell := func(name string, r model.Result) {
		if r.Safe() {
			t.Errorf("%s: still safe in %d states", name, r.States)
		}
		fmt.Fprintf(&told, "%s\n%s\n", name, numbered(r.Trace))
	}
	for _, tt := range history {
		if tt.steps > 0 {
			tell(tt.name, model.Search(tt.rules, model.OneLife))
		}
	}
	for _, tt := range removed {
		tell(tt.name, model.Search(tt.rules, model.Bad))
	}
	for _, tt := range removedAgain {
		tell(tt.name, model.Search(tt.rules, model.Again))
	}
	golden := filepath.Join("testdata", "traces.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(told.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), told.String()); diff != "" {
		t.Errorf("the shortest traces changed (-want +got):\n%s", diff)
	}
}

func numbered(steps []string) string {
	var b strings.Builder
	for i, step := range steps {
		fmt.Fprintf(&b, "%3d  %s\n", i+1, step)
	}
	return b.String()
}
