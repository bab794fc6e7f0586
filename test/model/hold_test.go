package model_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockstep.dev/lockstep/test/model"
)

// TestModeHoldIsSafe: nothing that a workload wants is deleted, and what is to go goes.
func TestModeHoldIsSafe(t *testing.T) {
	for _, tt := range []struct {
		name   string
		faults model.HoldFaults
		least  int
	}{
		{"order alone", model.HoldInOrder, 5000},
		{"crashes", model.HoldCrashes, 5000},
		{"errors, and policies that are away", model.HoldErrors, 1000},
		{"a second life", model.HoldLives, 1000},
		{"two operators", model.HoldTwo, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := model.SearchHold(model.Holding(), tt.faults)
			if !r.Safe() {
				t.Fatalf("what is wanted is deleted:\n%s", numbered(r.Trace))
			}
			if len(r.Pinned) > 0 {
				t.Fatalf("what is to go stays for ever:\n%s", numbered(r.Pinned))
			}
			if r.States < tt.least {
				t.Errorf("%d states: the search has gone blind", r.States)
			}
			t.Logf("%d states", r.States)
		})
	}
}

// TestEveryRuleOfHoldIsNeeded keeps the shortest traces in testdata. Without most rules
// what is wanted is deleted; without some what is to go stays for ever.
func TestEveryRuleOfHoldIsNeeded(t *testing.T) {
	var told strings.Builder
	for _, tt := range []struct {
		name   string
		faults model.HoldFaults
		remove func(*model.HoldRules)
		pins   bool
	}{
		{"nothing refuses", model.HoldInOrder, func(r *model.HoldRules) { r.Refuses = false }, false},
		{"a webhook refuses", model.HoldInOrder, func(r *model.HoldRules) { r.Atomic = false }, false},
		{"whoever writes to the claim takes words off", model.HoldInOrder, func(r *model.HoldRules) { r.GuardsWords = false }, false},
		{"a release or a wish counts for every life", model.HoldLives, func(r *model.HoldRules) { r.NamesLife = false }, false},
		{"a hold ends with its last holder", model.HoldInOrder, func(r *model.HoldRules) { r.Grace = false }, false},
		{"an error taken for no workload", model.HoldErrors, func(r *model.HoldRules) { r.ErrorsHold = false }, false},
		{"writes without preconditions", model.HoldCrashes, func(r *model.HoldRules) { r.Preconditions = false }, false},
		{"a wish carried out by the cache", model.HoldInOrder, func(r *model.HoldRules) { r.LooksLive = false }, false},
		{"words stay on what is on its way out", model.HoldErrors, func(r *model.HoldRules) { r.Yields = false }, true},
		{"who was refused is left to come again", model.HoldInOrder, func(r *model.HoldRules) { r.Replays = false }, true},
		{"and so where the words are off already", model.HoldCrashes, func(r *model.HoldRules) { r.ReplaysLater = false }, true},
	} {
		rules := model.Holding()
		tt.remove(&rules)
		r := model.SearchHold(rules, tt.faults)
		trace := r.Trace
		if tt.pins {
			trace = r.Pinned
		}
		if len(trace) == 0 || tt.pins != r.Safe() {
			t.Errorf("%s: safe %t, pinned %t in %d states", tt.name, r.Safe(), len(r.Pinned) > 0, r.States)
		}
		fmt.Fprintf(&told, "%s\n%s\n", tt.name, numbered(trace))
	}
	golden := filepath.Join("testdata", "holds.txt")
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
