package model_test

import (
	"fmt"
	"strings"
	"testing"

	"lockstep.dev/lockstep/test/model"
)

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
		if len(trace) == 0 || tt.pins != r.Safe() {
			t.Errorf("%s: safe %t, pinned %t in %d states", tt.name, r.Safe(), len(r.Pinned) > 0, r.States)
		}
		fmt.Fprintf(&traces, "%s\n%s\n", tt.name, numbered(trace))
	}
	golden(t, "holds.txt", traces.String())
}
