package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
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
	b, err := newTestbed(dir, stages, reaper)
	if err != nil {
		return nil, err
	}
	fmt.Printf("control plane: %d nodes, controller manager at %d queries/s\n", nodes, controllerManagerQPS)
	if err := reaper.Note("plane", b.plane.Program, b.plane.Dir); err != nil {
		return nil, err
	}
	if err := b.plane.Up(); err != nil {
		return nil, err
	}
	if err := b.connect(); err != nil {
		return nil, err
	}
	if err := b.operator.Install(); err != nil {
		return nil, err
	}
	if err := b.operator.start(); err != nil {
		return nil, err
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

func newTestbed(dir, stages string, reaper *drill.Reaper) (*testbed, error) {
	local, err := drill.Program("lockstep-local")
	if err != nil {
		return nil, err
	}
	lockstep, err := drill.Program("lockstep")
	if err != nil {
		return nil, err
	}
	ports, err := drill.FreePorts(2)
	if err != nil {
		return nil, err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	plane := &drill.Plane{Program: local, Dir: filepath.Join(dir, "plane"), Log: filepath.Join(dir, "local.log"), Nodes: nodes, QPS: controllerManagerQPS, Stages: stages}
	run := &drill.Operator{Program: lockstep, Kubeconfig: plane.Kubeconfig(), Webhooks: ports[0],
		Probes: ports[1], Reaper: reaper, Log: filepath.Join(dir, "operator.log")}
	if !soak() { // it costs time, and a cache that is written to ends the operator
		run.Env = []string{"KUBE_CACHE_MUTATION_DETECTOR=true"}
	}
	return &testbed{
		plane:    &controlPlane{plane},
		operator: &operator{run},
		reaper:   reaper,
		owners:   map[string]bool{},
	}, nil
}

// connect makes the tests' own client, which knows no rate limit.
func (b *testbed) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", b.plane.kubeconfig())
	if err != nil {
		return err
	}
	config.QPS = -1
	config.UserAgent = "cluster-test"
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := lwsv1.AddToScheme(scheme); err != nil {
		return err
	}
	b.rest = config
	audit, err := drill.FollowAudit(b.plane.auditLog(), config, kept)
	if err != nil {
		return err
	}
	b.audit = &auditLog{audit}
	b.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	return err
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
