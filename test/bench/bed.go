package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// benchAgent is the user agent of the bench's own requests.
const benchAgent = "bench"

// bed is the control plane and the operator that everything is measured on.
type bed struct {
	plane    *drill.Plane
	operator *drill.Operator
	flags    []string // of the operator
	config   *rest.Config
	client   client.Client
	audit    *drill.Audit
	stages   int
	profiles *profiles
	last     bool // nothing is measured after this
	divide   int  // what loads of PVCs are divided by
}

// raise starts control plane and operator. Unless all scenarios are cold, everything is done
// once before anything is measured.
func raise(ctx context.Context, dir string, reaper *drill.Reaper, s settings, cold bool) (b *bed, err error) {
	b = &bed{}
	if b.divide, err = divisor(os.Getenv(divideEnv)); err != nil {
		return nil, err
	}
	ports, err := drill.FreePorts(1)
	if err != nil {
		return nil, err
	}
	if b.profiles, err = profilesInto(s.profile, ports[0]); err != nil {
		return nil, err
	}
	b.flags = b.profiles.flags()
	raised, err := drill.NewBed(dir, reaper, drill.Plane{Nodes: s.nodes, QPS: s.qps})
	if err != nil {
		return nil, err
	}
	if err := raised.Raise(benchAgent, kept, b.flags...); err != nil {
		return nil, err
	}
	b.plane, b.operator, b.config, b.client, b.audit = raised.Plane, raised.Operator, raised.Rest, raised.Client, raised.Audit
	if cold {
		return b, nil
	}
	return b, b.warmUp(ctx)
}

// divideEnv makes loads of PVCs smaller, to try a scenario. The figures of such a run count
// for nothing.
const divideEnv = "LOCKSTEP_BENCH_DIVIDE"

func divisor(text string) (int, error) {
	if text == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s=%q: give a whole number from 1", divideEnv, text)
	}
	return n, nil
}

// part divides a number, when loads are divided.
func (b *bed) part(n int) int { return max(n/b.divide, 10) }

// kept keeps the operator's requests, and all creations and deletions of pods and writes to
// PVCs.
func kept(r drill.Request) bool {
	switch {
	case drill.ByLockstep(r):
		return true
	case r.Subresource != "":
		return false
	case r.Resource == "pods":
		return r.Verb == "create" || r.Verb == "delete"
	}
	return r.Resource == "persistentvolumeclaims" && drill.IsWrite(r)
}

// warmUp creates and deletes a set and bare StatefulSets, so that the garbage collector knows
// all kinds and no component does anything for the first time.
func (b *bed) warmUp(ctx context.Context) error {
	for _, load := range []load{own(3, 3), floor(3, 3)} {
		s, err := b.newStage(ctx, load)
		if err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		if err := s.comeAndGo(ctx); err != nil {
			return fmt.Errorf("warm up: %w\n%s", err, drill.LastLines(b.operator.Log, 20))
		}
		s.strike()
	}
	return nil
}

// stage is the namespace of one measurement.
type stage struct {
	*bed
	load
	*census
	namespace string
	stop      context.CancelFunc
	mark      int // where the audit log stood
}

func (b *bed) newStage(ctx context.Context, l load) (*stage, error) {
	namespace, err := b.newNamespace(ctx, nil)
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	s := &stage{bed: b, load: l, census: newCensus(l.groups, l.size), namespace: namespace, stop: stop}
	if err := s.watch(watching, b.config, b.client.Scheme(), namespace); err != nil {
		return nil, err
	}
	return s, s.remark()
}

// newNamespace creates a namespace in which pods can be created.
func (b *bed) newNamespace(ctx context.Context, labels map[string]string) (string, error) {
	b.stages++
	name := fmt.Sprintf("bench-%d", b.stages)
	if err := b.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); err != nil {
		return "", err
	}
	account := client.ObjectKey{Namespace: name, Name: "default"}
	for b.client.Get(ctx, account, &corev1.ServiceAccount{}) != nil {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return name, nil
}

// remark counts writes from now on.
func (s *stage) remark() error {
	if err := s.audit.Sync(); err != nil {
		return err
	}
	s.mark = s.audit.Position()
	return nil
}

// strike deletes the stage.
func (s *stage) strike() {
	s.stop()
	ctx := context.Background()
	_ = s.client.DeleteAllOf(ctx, &lwsv1.LeaderWorkerSet{}, client.InNamespace(s.namespace))
	_ = s.client.DeleteAllOf(ctx, &appsv1.StatefulSet{}, client.InNamespace(s.namespace))
	_ = s.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})
}

// comeAndGo creates the load and deletes it.
func (s *stage) comeAndGo(ctx context.Context) error {
	if err := s.create(ctx, s); err != nil {
		return err
	}
	if err := s.await(ctx, "all groups are there", s.complete); err != nil {
		return err
	}
	if err := s.remove(ctx, s); err != nil {
		return err
	}
	return s.await(ctx, "all pods are gone", s.empty)
}
