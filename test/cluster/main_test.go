package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/test/drill"
)

// bed is the control plane and the operator every test of this binary runs on.
var bed *drill.Bed

const (
	// controllerManagerQPS is above the default of 20, which would slow each StatefulSet down.
	controllerManagerQPS = 200
	// nodes is the number of simulated nodes.
	nodes    = 20
	patience = drill.Patience

	apiServer         = drill.APIServer
	controllerManager = drill.ControllerManager
	scheduler         = drill.Scheduler
)

func TestMain(m *testing.M) {
	drill.Main(m, func(dir string, reaper *drill.Reaper) (err error) {
		bed, err = raise(dir, reaper)
		return err
	}, func() error {
		if bed == nil {
			return nil
		}
		return errors.Join(bed.CheckWrites(), bed.CheckRights())
	})
}

// raise starts a control plane, installs Lockstep and runs it.
func raise(dir string, reaper *drill.Reaper) (*drill.Bed, error) {
	b, err := drill.NewBed(dir, reaper, drill.Plane{Nodes: nodes, QPS: controllerManagerQPS})
	if err != nil {
		return nil, err
	}
	if !soak() { // it costs time, and a cache that is written to ends the operator
		b.Operator.Env = []string{"KUBE_CACHE_MUTATION_DETECTOR=true"}
	}
	fmt.Printf("control plane: %d nodes, controller manager at %d queries/s\n", nodes, controllerManagerQPS)
	b.MayWrite(metav1.NamespaceDefault) // the events of namespaces
	if err := b.Raise("cluster-test", kept); err != nil {
		return nil, err
	}
	return b, nil
}

// kept reports whether the audit log keeps a request: all of the plugin, writes of the operator,
// creates of pods, what a scheduler writes to PVCs and bindings, and what an autoscaler measures.
func kept(r drill.Request) bool {
	return byPlugin(r) || asksMetrics(r) || drill.IsDryRun(r) || drill.IsWrite(r) && (drill.ByLockstep(r) || drill.CreatesPod(r) || schedules(r))
}

// configured are the flags of an operator that reads a configuration with these fields.
func configured(t *testing.T, fields string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "configuration.yaml")
	must(t, os.WriteFile(file, []byte("apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\n"+fields), 0o600))
	return []string{"--config", file}
}

// soak reports whether drills with a fault run in full, one at a time.
func soak() bool { return os.Getenv("LOCKSTEP_SOAK") != "" }

// rounds returns how often each mode of delete-and-create runs.
func rounds(t *testing.T) int {
	text := cmp.Or(os.Getenv("LOCKSTEP_ROUNDS"), "2")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("LOCKSTEP_ROUNDS=%q: want a number of at least 1", text)
	}
	return n
}

// faultRounds returns how often a drill with a fault runs.
func faultRounds(t *testing.T) int {
	if soak() {
		return rounds(t)
	}
	return (rounds(t) + 1) / 2
}

// seed is the source of all random moments of a run.
var seed = sync.OnceValue(func() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("LOCKSTEP_SEED"), 10, 64); err == nil {
		return n
	}
	return uint64(time.Now().UnixNano())
})

// smoke names one drill for each promise. "make drills" runs the others.
var smoke = []struct {
	promise string
	drill   func(*testing.T)
}{
	{"deleted in the background and recreated", recreateRounds("background")},
	{"deleted in the foreground and recreated", recreateRounds("foreground")},
	{"orphaned and recreated", recreateRounds("orphan, unchanged")},
	{"a stuck pod holds back its own group only", func(t *testing.T) { stuckPod(t, "a-3-2", 1, false, 3) }},
	{"taken over and handed back", TestTakeover},
	{"rolled out within its budget", TestRollout},
	{"a partition holds groups", TestPartitionHoldsGroups},
	{"a failed group is recreated once", TestContainerRestartRecreatesTheGroup},
	{"a failure is seen after the operator was down", TestWorkerThatVanishesWhileTheOperatorIsDown},
	{"scaled through the spec and the subresource", TestScale},
	{"PVCs outlive restarts and rollouts", func(t *testing.T) {
		each(t, map[string]retention{"kept with the set": keepClaims, "deleted with the set": deleteClaims}, outlive)
	}},
	{"a PVC in use stays", TestClaimsBesideTheBuiltIn},
	{"a held PVC is not deleted", func(t *testing.T) {
		guard(t)
		t.Run("workloads", func(t *testing.T) { workloadsHold(newGuarded(t)) })
		t.Run("restart", func(t *testing.T) { mistakeDuringRestart(newGuarded(t)) })
	}},
	{"strict mode waits for the operator", TestStrictWaitsForTheOperator},
	{"an exclusive topology", TestExclusiveTopology},
	{"gangs", TestGangs},
	{"the operator's token is bounded", TestTheOperatorsTokenIsBounded},
	{"a settled set is not written", TestSettledSetIsNotWritten},
	{"uninstalled", TestUninstallWithProtectedClaims},
}

// TestSmoke is the part of this package that "make test" runs.
func TestSmoke(t *testing.T) {
	for _, s := range smoke {
		t.Run(s.promise, s.drill)
	}
}
