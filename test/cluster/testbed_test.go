package cluster

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/drill"
)

const (
	// ownNamespace has the operator's certificate and lease.
	ownNamespace = "lws-system"
	// controllerManagerQPS is above the default of 20, which would slow each StatefulSet down.
	controllerManagerQPS = 200
	// nodes is the number of simulated nodes.
	nodes    = 20
	patience = drill.Patience
)

// Components that a drill may kill or restart.
const (
	apiServer         = drill.APIServer
	controllerManager = drill.ControllerManager
	scheduler         = drill.Scheduler
)

type request = drill.Request

// kept reports whether the audit log keeps a request: writes of the operator, creates of pods,
// and what a scheduler writes to PVCs and bindings.
func kept(r request) bool {
	return drill.IsWrite(r) && (drill.ByLockstep(r) || drill.CreatesPod(r) || schedules(r))
}

// soak reports whether drills with a fault run in full, one at a time.
func soak() bool { return os.Getenv("LOCKSTEP_SOAK") != "" }

// rounds returns how often each mode of delete-and-create runs.
func rounds(t *testing.T) int {
	t.Helper()
	text := cmp.Or(os.Getenv("LOCKSTEP_ROUNDS"), "2")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("LOCKSTEP_ROUNDS=%q: want a number of at least 1", text)
	}
	return n
}

// faultRounds returns how often a drill with a fault runs.
func faultRounds(t *testing.T) int {
	t.Helper()
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

// testbed is one control plane with one operator.
type testbed struct {
	plane    *drill.Plane
	operator *drill.Operator
	client   client.WithWatch
	rest     *rest.Config
	audit    *drill.Audit
	reaper   *drill.Reaper

	mu     sync.Mutex
	scenes int
	owners map[string]bool // namespaces in which a set was created
}

// raise starts a control plane with the named pod stages, installs Lockstep and runs it.
func raise(dir, stages string, reaper *drill.Reaper) (*testbed, error) {
	raised, err := drill.NewBed(dir, reaper, drill.Plane{Nodes: nodes, QPS: controllerManagerQPS, Stages: stages})
	if err != nil {
		return nil, err
	}
	if !soak() { // it costs time, and a cache that is written to ends the operator
		raised.Operator.Env = []string{"KUBE_CACHE_MUTATION_DETECTOR=true"}
	}
	fmt.Printf("control plane: %d nodes, controller manager at %d queries/s\n", nodes, controllerManagerQPS)
	if err := raised.Raise("cluster-test", kept); err != nil {
		return nil, err
	}
	b := &testbed{
		plane: raised.Plane, operator: raised.Operator, client: raised.Client, rest: raised.Rest,
		audit: raised.Audit, reaper: reaper, owners: map[string]bool{},
	}
	return b, b.warmUp()
}

// warmUp returns once the garbage collector knows the kind, which it learns within 30 seconds.
func (b *testbed) warmUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	set := (&scene{namespace: metav1.NamespaceDefault}).newSet("warm-up", 0, 1, imageA)
	b.hasSet(set.Namespace)
	child := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name}}
	there := func(ctx context.Context) (bool, error) {
		err := b.client.Get(ctx, keyOf(child), child)
		return err == nil, client.IgnoreNotFound(err)
	}
	gone := func(ctx context.Context) (bool, error) {
		still, err := there(ctx)
		return !still && err == nil, err
	}
	const often = 100 * time.Millisecond
	for _, err := range []error{
		b.client.Create(ctx, set),
		wait.PollUntilContextCancel(ctx, often, true, there),
		b.client.Delete(ctx, set),
		wait.PollUntilContextCancel(ctx, often, true, gone),
	} {
		if err != nil {
			return fmt.Errorf("warm up: %w\n%s", err, drill.LastLines(b.operator.Log, 40))
		}
	}
	return nil
}

// position returns where the audit log stands after all requests that were answered before.
func (b *testbed) position() int {
	_ = b.audit.Sync() // it fails where the API server is away, and then so does what reads the log later
	return b.audit.Position()
}

// nextNamespace returns a name that no test of this run has had.
func (b *testbed) nextNamespace() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scenes++
	return fmt.Sprintf("scene-%d", b.scenes)
}

// hasSet notes that the operator may write in a namespace.
func (b *testbed) hasSet(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owners[namespace] = true
}

// checkWrites checks that the operator wrote in namespaces with a set and in its own only.
func (b *testbed) checkWrites() error {
	if err := b.audit.Sync(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var astray []string
	for _, w := range b.audit.Kept(0, drill.ByLockstep) {
		if w.Namespace != "" && w.Namespace != ownNamespace && !b.owners[w.Namespace] {
			astray = append(astray, w.String())
		}
	}
	if len(astray) == 0 {
		return nil
	}
	slices.Sort(astray)
	return fmt.Errorf("lockstep wrote in namespaces that hold no set:\n%s", strings.Join(slices.Compact(astray), "\n"))
}
