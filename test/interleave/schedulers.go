package interleave

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kube-scheduler/framework"

	"lockstep.dev/lockstep/scheduling"
)

// schedule binds pods.
func (w *world) schedule(add adder) {
	if w.rules.start == plugin {
		for _, s := range w.schedulers {
			s.steps(add)
		}
		return
	}
	for _, name := range sorted(w.store.pods()) {
		if pod := w.store.pods()[name]; pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 {
			add(schedulers, func() { _ = w.bind(name, pod.UID) }, "pod %s is bound", name)
		}
	}
}

// scheduler runs our real plugin. Each pod has a scheduler of its own: in one, pods that share a PVC
// would wait for each other.
type scheduler struct {
	framework.Handle // the methods that nothing calls
	world            *world
	pod              string
	plugin           *scheduling.Plugin
	factory          informers.SharedInformerFactory
	client           kubernetes.Interface
	heard            int // the number of changes of PVCs that it knows
	busy             atomic.Bool
	ctx              context.Context
	crash            context.CancelFunc
}

func (s *scheduler) String() string                                         { return "scheduler of " + s.pod }
func (s *scheduler) ClientSet() kubernetes.Interface                        { return s.client }
func (s *scheduler) SharedInformerFactory() informers.SharedInformerFactory { return s.factory }

func (w *world) startScheduler(pod string) {
	s := &scheduler{world: w, pod: pod, factory: informers.NewSharedInformerFactory(nil, 0)}
	s.ctx, s.crash = context.WithCancel(w.ctx)
	s.client = schedulerClient{api: &apiServer{world: w, from: s.String(), by: schedulersArrive}}
	made, err := scheduling.New(s.ctx, nil, s)
	if err != nil {
		panic(err)
	}
	s.plugin = made.(*scheduling.Plugin)
	s.hear()
	w.schedulers = append(w.schedulers, s)
}

// crashScheduler replaces a scheduler by one with empty caches.
func (w *world) crashScheduler(i int) {
	s := w.schedulers[i]
	s.crash()
	w.startScheduler(s.pod)
	w.schedulers[i] = w.schedulers[len(w.schedulers)-1]
	w.schedulers = w.schedulers[:len(w.schedulers)-1]
}

// hear brings its cache of PVCs up to date.
func (s *scheduler) hear() {
	s.heard = len(s.world.store.claimLog)
	var claims []any
	for _, name := range sorted(s.world.store.claims()) {
		claims = append(claims, s.world.store.claims()[name].DeepCopy())
	}
	if err := s.factory.Core().V1().PersistentVolumeClaims().Informer().GetStore().Replace(claims, ""); err != nil {
		panic(err)
	}
}

func (s *scheduler) steps(add adder) {
	if s.heard < len(s.world.store.claimLog) {
		add(schedulersHear, s.hear, "%s: hears of claims", s)
	}
	pod := s.world.store.pods()[s.pod]
	if s.busy.Load() || pod == nil || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return
	}
	add(schedulers, func() { s.turnTo(pod) }, "%s: turns to it", s)
}

func (s *scheduler) turnTo(pod *corev1.Pod) {
	state := &cycle{}
	if _, status := s.plugin.PreFilter(s.ctx, state, pod, nil); !status.IsSuccess() {
		return
	}
	s.busy.Store(true)
	go func() {
		defer s.busy.Store(false)
		s.bind(state, pod)
	}()
}

func (s *scheduler) bind(state *cycle, pod *corev1.Pod) {
	if !s.plugin.PreBind(s.ctx, state, pod, node).IsSuccess() {
		return
	}
	bind := func() error { return s.world.bind(pod.Name, pod.UID) }
	_ = s.world.wire.send(s.ctx, &call{from: s.String(), by: schedulersArrive, says: "bind " + pod.Name, writes: true, run: bind})
}

// cycle is the state of a scheduler for one pod.
type cycle struct {
	framework.CycleState // the methods that nothing calls
	data                 framework.StateData
}

func (c *cycle) Write(_ framework.StateKey, data framework.StateData) { c.data = data }

func (c *cycle) Read(framework.StateKey) (framework.StateData, error) {
	if c.data == nil {
		return nil, framework.ErrNotFound
	}
	return c.data, nil
}

// schedulerClient reaches the store over the wire.
type schedulerClient struct {
	kubernetes.Interface // the methods that nothing calls
	api                  *apiServer
}

func (c schedulerClient) CoreV1() corev1client.CoreV1Interface { return schedulerCore{api: c.api} }

type schedulerCore struct {
	corev1client.CoreV1Interface
	api *apiServer
}

func (c schedulerCore) PersistentVolumeClaims(string) corev1client.PersistentVolumeClaimInterface {
	return schedulerClaims{api: c.api}
}

type schedulerClaims struct {
	corev1client.PersistentVolumeClaimInterface
	api *apiServer
}

func (c schedulerClaims) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	return claim, c.api.getClaim(ctx, name, claim)
}

func (c schedulerClaims) Patch(ctx context.Context, name string, how types.PatchType, data []byte, _ metav1.PatchOptions, sub ...string) (*corev1.PersistentVolumeClaim, error) {
	if how != types.MergePatchType || len(sub) > 0 {
		return nil, fmt.Errorf("no party writes %s of %v", how, sub)
	}
	return c.api.patchClaim(ctx, name, data)
}
