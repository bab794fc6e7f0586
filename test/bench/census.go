package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
)

// pod is the part of a pod that the census needs.
type pod struct {
	group, image string
	ready        bool
}

// census counts the objects of one namespace, event by event.
type census struct {
	full     int // pods of a whole group
	expected int // pods of all groups

	mu      sync.Mutex
	wake    chan struct{}
	pods    map[types.UID]pod
	created int // all pods seen so far
	ready   int
	readyIn map[string]int // ready pods of each group
	whole   int            // groups with all pods ready
	fewest  int            // the least value of whole since fewest was last set
	sets    map[string]*lwsv1.LeaderWorkerSet
	pairs   map[string]*dsv1.DisaggregatedSet
	stss    map[string]bool // by StatefulSet: true if its status says that all pods are ready
}

func newCensus(groups, size int) *census {
	return &census{
		full: size, expected: groups * size, wake: make(chan struct{}), pods: map[types.UID]pod{},
		readyIn: map[string]int{}, sets: map[string]*lwsv1.LeaderWorkerSet{}, pairs: map[string]*dsv1.DisaggregatedSet{}, stss: map[string]bool{},
	}
}

// counted are the kinds that a census counts.
var counted = []client.ObjectList{&corev1.PodList{}, &appsv1.StatefulSetList{}, &lwsv1.LeaderWorkerSetList{}, &dsv1.DisaggregatedSetList{}}

func (n *census) see(object client.Object, there bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch object := object.(type) {
	case *corev1.Pod:
		n.seePod(object, there)
	case *appsv1.StatefulSet:
		n.seeStatefulSet(object, there)
	case *lwsv1.LeaderWorkerSet:
		if delete(n.sets, object.Name); there {
			n.sets[object.Name] = object
		}
	case *dsv1.DisaggregatedSet:
		if delete(n.pairs, object.Name); there {
			n.pairs[object.Name] = object
		}
	}
	n.fewest = min(n.fewest, n.whole)
	close(n.wake)
	n.wake = make(chan struct{})
}

func (n *census) seePod(object *corev1.Pod, there bool) {
	before, known := n.pods[object.UID]
	if !known && there {
		n.created++
	}
	if known && before.ready {
		n.count(before.group, -1)
	}
	delete(n.pods, object.UID)
	if !there {
		return
	}
	now := pod{group: groupOf(object), image: object.Spec.Containers[0].Image, ready: drill.PodReady(object)}
	n.pods[object.UID] = now
	if now.ready {
		n.count(now.group, 1)
	}
}

// count counts a ready pod in or out of its group. A pod that an update counts out and in
// again does not lower fewest.
func (n *census) count(group string, change int) {
	if n.readyIn[group] == n.full {
		n.whole--
	}
	n.readyIn[group] += change
	n.ready += change
	if n.readyIn[group] == n.full {
		n.whole++
	}
}

func (n *census) seeStatefulSet(sts *appsv1.StatefulSet, there bool) {
	if delete(n.stss, sts.Name); there {
		n.stss[sts.Name] = sts.Status.ObservedGeneration >= sts.Generation && sts.Status.AvailableReplicas == *sts.Spec.Replicas &&
			sts.Status.UpdatedReplicas == *sts.Spec.Replicas
	}
}

// groupOf returns the group of a pod: the name of its leader.
func groupOf(pod *corev1.Pod) string {
	if index := pod.Labels[lwsv1.GroupIndexLabelKey]; index != "" {
		return pod.Labels[lwsv1.SetNameLabelKey] + "-" + index
	}
	if group := pod.Labels[groupLabel]; strings.Contains(group, "-") {
		return group
	}
	return pod.Name
}

// patience bounds a wait. It allows for a slow control plane that creates ten pods a second.
func (n *census) patience() time.Duration {
	return 2*drill.Patience + time.Duration(n.expected)*100*time.Millisecond
}

// await waits until a condition holds. It evaluates the condition under the lock.
func (s *stage) await(what string, holds func() bool) {
	deadline, n := time.After(s.patience()), s.census
	for {
		n.mu.Lock()
		done, next := holds(), n.wake
		n.mu.Unlock()
		if done {
			return
		}
		select {
		case <-next:
		case <-s.ctx.Done():
			must(s.ctx.Err())
		case <-deadline:
			n.mu.Lock()
			defer n.mu.Unlock()
			valid(false, "never true: %s; %d pods exist, %d ready, %d groups whole, StatefulSets ready %v", what, len(n.pods), n.ready, n.whole, n.stss)
		}
	}
}

// holding calls a function under the lock.
func holding[T any](n *census, ask func() T) T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return ask()
}

func (n *census) empty() bool { return len(n.pods) == 0 }

// allReady reports whether all pods of the load are ready, and no others exist.
func (s *stage) allReady() bool {
	return s.whole == s.groups && len(s.pods) == s.groups*s.size && s.ready == len(s.pods)
}

// complete reports whether the status says that all of the load is ready.
func (s *stage) complete() bool {
	if !s.allReady() {
		return false
	}
	if s.bare {
		return len(s.stss) == len(s.statefulSets()) && !slices.Contains(slices.Collect(maps.Values(s.stss)), false)
	}
	if s.told != nil {
		return s.told(s)
	}
	return available(s.sets["a"], s.groups)
}

func available(set *lwsv1.LeaderWorkerSet, groups int) bool {
	return set != nil && set.Status.ObservedGeneration == set.Generation && int(set.Status.ReadyReplicas) == groups &&
		meta.IsStatusConditionTrue(set.Status.Conditions, string(lwsv1.LeaderWorkerSetAvailable))
}

func (n *census) allAt(image string) bool {
	for _, pod := range n.pods {
		if pod.image != image {
			return false
		}
	}
	return true
}

// cost is the time and the requests of one piece of work.
type cost struct {
	time    time.Duration
	cpu     time.Duration // of the operator
	nodes   time.Duration // CPU of the simulated nodes
	server  time.Duration // CPU of the API server
	manager time.Duration // CPU of Kubernetes' controllers
	writes  int           // of the operator, without events
	refused int           // of these writes
	dryRuns int           // of the operator
	events  int
	reads   int // of the operator, without watches
	pods    int // created by any client
}

// plus returns the sum of two costs.
func (c cost) plus(d cost) cost {
	return cost{
		time: c.time + d.time, cpu: c.cpu + d.cpu, nodes: c.nodes + d.nodes, server: c.server + d.server, manager: c.manager + d.manager,
		writes: c.writes + d.writes, refused: c.refused + d.refused, dryRuns: c.dryRuns + d.dryRuns,
		events: c.events + d.events, reads: c.reads + d.reads, pods: c.pods + d.pods,
	}
}

// spend runs a function, waits until its work is done, and measures both.
func (s *stage) spend(what string, do func() error, done func() bool) (c cost) {
	s.remark()
	created := holding(s.census, func() int { return s.created })
	cpu, nodes, server, began := s.used().cpu, s.componentCPU("kwok"), s.componentCPU(drill.APIServer), time.Now()
	manager := s.componentCPU(drill.ControllerManager)
	if err := do(); err != nil {
		must(fmt.Errorf("%s: %w", what, err))
	}
	s.await(what, done)
	c.time, c.nodes = time.Since(began), s.componentCPU("kwok")-nodes
	s.rest()
	c.cpu, c.server = s.used().cpu-cpu, s.componentCPU(drill.APIServer)-server
	c.manager = s.componentCPU(drill.ControllerManager) - manager
	c.pods = holding(s.census, func() int { return s.created }) - created
	must(s.Audit.Sync())
	for _, r := range s.since(drill.ByLockstep) {
		switch {
		case r.Resource == "events":
			c.events++
		case drill.IsDryRun(r):
			c.dryRuns++
		case drill.IsWrite(r):
			c.writes++
			if r.Code >= http.StatusBadRequest {
				c.refused++
			}
		case r.Verb != "watch":
			c.reads++
		}
	}
	return c
}

// tellCost adds the figures of a cost, and of the floor, which may be zero.
func (b *bed) tellCost(c, floor cost) {
	b.tell("seconds", c.time.Seconds())
	if floor.time > 0 {
		b.tell("floor-seconds", floor.time.Seconds())
		b.tell("ratio", c.time.Seconds()/floor.time.Seconds())
	}
	b.tell("writes", float64(c.writes))
	b.tell("refused-writes", float64(c.refused))
	b.tell("dry-runs", float64(c.dryRuns))
	b.tell("events", float64(c.events))
	b.tell("reads", float64(c.reads))
	b.tell("pods-created", float64(c.pods))
	b.tell("cpu-seconds", c.cpu.Seconds())
	b.tell("api-server-cpu-seconds", c.server.Seconds())
	b.tell("controller-manager-cpu-seconds", c.manager.Seconds())
}

// rest waits until the operator is idle, because its remaining writes belong to the measured
// work.
func (b *bed) rest() {
	const still = 10 * time.Millisecond // of CPU in half a second
	for quiet := 0; quiet < 3; {
		before := b.used().cpu
		pause(b.ctx, 500*time.Millisecond)
		if quiet++; b.used().cpu-before > still {
			quiet = 0
		}
	}
}

// usage is the CPU time and memory of a process. On systems without /proc it is zero.
type usage struct {
	cpu  time.Duration // for itself and in the kernel
	rss  float64       // MiB now
	peak float64       // MiB at most so far
}

// used returns the usage of the operator so far.
func (b *bed) used() (u usage) {
	process, err := procfs.NewProc(b.Operator.PID())
	if err != nil {
		return u
	}
	if stat, err := process.Stat(); err == nil {
		u.cpu = time.Duration(stat.CPUTime() * float64(time.Second))
	}
	if status, err := process.NewStatus(); err == nil {
		u.rss, u.peak = float64(status.VmRSS)/(1<<20), float64(status.VmHWM)/(1<<20)
	}
	return u
}

// componentCPU returns the CPU time of a component of the control plane so far. The simulated nodes, kwok, do nearly the
// same work for any operator: more CPU for it means that the machine was slower.
func (b *bed) componentCPU(name string) (used time.Duration) {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0
	}
	for _, process := range all {
		args, err := process.CmdLine()
		if err != nil || len(args) == 0 || args[0] != name || !strings.Contains(strings.Join(args, " "), b.Plane.Dir) {
			continue
		}
		if stat, err := process.Stat(); err == nil {
			used += time.Duration(stat.CPUTime() * float64(time.Second))
		}
	}
	return used
}

// resetPeak resets the peak memory of the operator.
func (b *bed) resetPeak() {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", b.Operator.PID()), []byte("5"), 0) // if it fails, the figure is too large
}
