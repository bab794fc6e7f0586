package interleave

import (
	"context"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/controller/podgate"
	"lockstep.dev/lockstep/internal/controller/pvcfinalizer"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
)

// ours is one process of our controllers.
type ours struct {
	name   string
	caches *caches
	watch  *podWatch
	crash  context.CancelFunc
}

func (w *world) startOurs() {
	ctx, cancel := context.WithCancel(w.ctx)
	o := &ours{
		name:   "ours",
		caches: &caches{claims: newInformer(&w.store.claimLog, w.store.claims())},
		watch:  newPodWatch(w.store),
		crash:  cancel,
	}
	if len(w.operators) > 0 && w.operators[0].name == o.name {
		o.name = "the other of ours"
	}
	api := &apiServer{world: w, from: o.name, by: oursArrives}
	source := toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
		ListWithContextFunc:  o.watch.list,
		WatchFuncWithContext: o.watch.watch,
	}, listsOnly{})
	pods, actor := pvccache.NewPods(source, toolscache.DefaultWatchErrorHandler), apply.New(api, api)
	settings := pvc.Settings{Mode: pvc.Barrier, Alone: !w.rules.builtIn}
	controller := pvcfinalizer.New(pvcfinalizer.Options{
		Settings: settings, Caches: o.caches, Live: api, Pods: pods, Actor: actor, Recorder: silent{}, Log: logr.Discard(),
	})
	w.operators = append(w.operators, o)
	go pods.Run(ctx)
	go func() { _ = controller.Start(ctx) }()
	if w.rules.start == gated {
		lift(ctx, &podgate.Reconciler{Settings: settings, Pods: pods, Caches: o.caches, Live: api, Actor: actor, Report: controller.Report()})
	}
}

type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// podWatch is the watch of pods.
type podWatch struct {
	store  *store
	at     int
	events chan watch.Event
	broken bool
}

func newPodWatch(s *store) *podWatch {
	return &podWatch{store: s, events: make(chan watch.Event, 1000)}
}

// listsOnly makes every watch begin with a list.
type listsOnly struct{}

func (listsOnly) IsWatchListSemanticsUnSupported() bool { return true }

func (p *podWatch) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	p.at, p.events, p.broken = len(p.store.podLog), make(chan watch.Event, 1000), false
	return p.store.podsNow(), nil
}

func (p *podWatch) watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	if p.broken {
		return nil, apierrors.NewResourceExpired("too old resource version")
	}
	return p, nil
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

// breakOff ends the watch at a version that has expired: pods that come and go before the next list
// are never reported.
func (p *podWatch) breakOff() {
	p.broken = true
	close(p.events)
}
