package interleave

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/controller/podgate"
	"lockstep.dev/lockstep/internal/controller/pvcfinalizer"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
)

// ours is one life of our controllers.
type ours struct {
	name   string
	caches *caches
	watch  *podWatch
	gates  *informer[*corev1.Pod]
	crash  context.CancelFunc
}

func (w *world) startOurs() {
	ctx, cancel := context.WithCancel(w.ctx)
	o := &ours{
		name: "ours",
		caches: &caches{
			claims: newInformer(&w.store.claimLog, w.store.claims()), hideP: w.rules.ignoresP, hideRecords: w.rules.ignoresRecords,
		},
		watch: newPodWatch(w.store),
		gates: newInformer(&w.store.podLog, w.store.pods()),
		crash: cancel,
	}
	if len(w.operators) > 0 && w.operators[0].name == o.name {
		o.name = "the other of ours"
	}
	api := &apiServer{world: w, from: o.name, by: oursArrives}
	pods, claims, actor := pvccache.NewPods(podClient{o.watch}, toolscache.DefaultWatchErrorHandler), pvccache.NewClaims(o.caches, api), apply.New(api, api)
	settings := pvc.Settings{Mode: pvc.Barrier, Alone: !w.rules.builtIn}
	controller := pvcfinalizer.New(pvcfinalizer.Options{
		Settings: settings, Caches: o.caches, Claims: claims, Pods: pods,
		PodReader: func(told func(pvccache.PodRead)) *pvccache.PodReader {
			return pvccache.NewPodReader(pods, api, time.Now, told)
		},
		Actor: actor, Recorder: silent{}, Clock: clock.RealClock{}, Log: logr.Discard(),
	})
	w.operators = append(w.operators, o)
	go pods.Run(ctx)
	go func() { _ = controller.Start(ctx) }()
	if w.rules.start == gated {
		o.lift(ctx, podgate.New(podgate.Options{
			Settings: settings, Gated: pvccache.GatedIn(gatedPods{pods: o.gates}), Claims: claims, Actor: actor, Narrator: controller.Narrator(),
		}))
	}
}

type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// podClient is how the controller's watch of pods reads.
type podClient struct{ *podWatch }

// podWatch is the one watch of pods.
type podWatch struct {
	corev1client.PodInterface // what is not asked for
	store                     *store
	at                        int
	events                    chan watch.Event
	broken                    bool
}

func newPodWatch(s *store) *podWatch {
	return &podWatch{store: s, events: make(chan watch.Event, 1000)}
}

// IsWatchListSemanticsUnSupported has the watch begin with a list.
func (podClient) IsWatchListSemanticsUnSupported() bool { return true }

func (p podClient) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	p.at, p.events, p.broken = len(p.store.podLog), make(chan watch.Event, 1000), false
	return p.store.podsNow(), nil
}

func (p podClient) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	if p.broken {
		return nil, apierrors.NewResourceExpired("too old resource version")
	}
	return p.podWatch, nil
}

// Stop implements watch.Interface.
func (p *podWatch) Stop() {}

// ResultChan implements watch.Interface.
func (p *podWatch) ResultChan() <-chan watch.Event { return p.events }

func (p *podWatch) behind() bool { return !p.broken && p.at < len(p.store.podLog) }

func (p *podWatch) deliver() {
	event := p.store.podLog[p.at]
	p.at++
	p.events <- watch.Event{Type: event.Type, Object: event.Object.DeepCopyObject()}
}

// breakOff ends the watch where it cannot be taken up again: what came and went until
// pods are listed is never heard of.
func (p *podWatch) breakOff() {
	p.broken = true
	close(p.events)
}
