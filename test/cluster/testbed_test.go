package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/test/drill"
)

// ownNamespace is where the operator keeps its certificate and its lease.
const ownNamespace = "lws-system"

// testbed is one control plane with one operator on it.
type testbed struct {
	plane    *controlPlane
	operator *operator
	client   client.WithWatch
	rest     *rest.Config
	audit    *auditLog
	reaper   *drill.Reaper

	mu     sync.Mutex
	scenes int
	owners map[string]bool // namespaces in which a set was created
}

// raise brings up a control plane with the named pod stages, installs Lockstep and runs it.
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
		plane: &controlPlane{raised.Plane}, operator: &operator{raised.Operator}, client: raised.Client, rest: raised.Rest,
		audit: &auditLog{raised.Audit}, reaper: reaper, owners: map[string]bool{},
	}
	return b, b.warmUp()
}

// warmUp returns once the garbage collector, which asks for new kinds only every
// 30 seconds, has cleared away what a set had owned. Without that the first test
// would wait for it.
func (b *testbed) warmUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	set := (&scene{namespace: metav1.NamespaceDefault}).newSet("warm-up", 0, 1, imageA)
	b.hasSet(set.Namespace)
	child := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name}}
	there := func(ctx context.Context) (bool, error) {
		err := b.client.Get(ctx, client.ObjectKeyFromObject(child), child)
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
			return fmt.Errorf("warm up: %w\n%s", err, lastLines(b.operator.Log, 40))
		}
	}
	return nil
}

// nextNamespace returns a name no test of this run has had.
func (b *testbed) nextNamespace() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scenes++
	return fmt.Sprintf("scene-%d", b.scenes)
}

// hasSet remembers that the operator may write in a namespace.
func (b *testbed) hasSet(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owners[namespace] = true
}

// checkWrites holds everything the operator wrote in the whole run against one
// law: it writes in namespaces that hold a set, and in its own.
func (b *testbed) checkWrites() error {
	if err := b.audit.sync(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var astray []string
	for _, w := range b.audit.writes(0, byLockstep) {
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
