package cluster

import (
	"testing"
)

// smoke names one drill for each promise. "make drills" runs the others.
var smoke = []struct {
	promise string
	drill   func(*testing.T)
}{
	{"deleted in the background and recreated", TestRecreateBackground},
	{"deleted in the foreground and recreated", TestRecreateForeground},
	{"orphaned and recreated", TestRecreateOrphanUnchangedCreatesNothing},
	{"a stuck pod holds back its own group only", TestStuckWorkerHoldsBackItsOwnGroupOnly},
	{"taken over and handed back", TestTakeover},
	{"rolled out within its budget", TestRollout},
	{"a partition holds groups", TestPartitionHoldsGroups},
	{"a failed group is recreated once", TestContainerRestartRecreatesTheGroup},
	{"a failure is seen after the operator was down", TestWorkerThatVanishesWhileTheOperatorIsDown},
	{"scaled through the subresource", TestScaleThroughSubresource},
	{"PVCs outlive restarts and rollouts", TestClaimsOutliveRestartsAndRollouts},
	{"a PVC in use stays", TestClaimsBesideTheBuiltIn},
	{"a held PVC is not deleted", func(t *testing.T) {
		guard(t)
		t.Run("workloads", func(t *testing.T) { workloadsHold(newGuarded(t)) })
		t.Run("restart", func(t *testing.T) { mistakeDuringRestart(newGuarded(t)) })
	}},
	{"strict mode waits for the operator", TestStrictWaitsForTheOperator},
	{"an exclusive topology", TestExclusiveTopology},
	{"gangs", TestGangs},
	{"a settled set is not written", TestSettledSetIsNotWritten},
	{"uninstalled", TestUninstallWithProtectedClaims},
}

// TestSmoke is the part of this package that "make test" runs.
func TestSmoke(t *testing.T) {
	for _, s := range smoke {
		t.Run(s.promise, s.drill)
	}
}
