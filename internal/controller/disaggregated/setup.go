// Package disaggregated reconciles DisaggregatedSets.
//
// It knows which watch event concerns which set, and that the API server may not serve the kind yet. It refuses to know
// what a reconcile decides.
package disaggregated

import (
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	runtimereconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/definitioncache"
	"lockstep.dev/lockstep/internal/disaggregated/set"
	"lockstep.dev/lockstep/internal/disaggregatedcache"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/memory"
	"lockstep.dev/lockstep/internal/reconcile"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/internal/turn"
)

// Name is the name of the controller.
const Name = "disaggregatedset"

const workers = 8

// loop reconciles sets.
type loop struct {
	reconcile.Executor
	observer *disaggregatedcache.Observer
	requests *requests
}

// Setup adds the controller to the manager, from the time on when the API server serves the kind.
func Setup(mgr ctrl.Manager, starter *kinds.Starter) error {
	if err := disaggregatedcache.Index(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return err
	}
	for _, collector := range report.RoleMetrics() {
		_ = metrics.Registry.Register(collector) // registered already by an earlier setup in this process
	}
	kind := dsv1.GroupVersion.WithKind(string(identity.KindDisaggregatedSet))
	definition := definitioncache.New(mgr.GetAPIReader(), kind, "disaggregatedsets")
	l := newLoop(mgr, definition)
	var once sync.Once
	starter.OnDefinition(definition.Name(), func(is metav1.Object) {
		if definition.Changed(is) {
			l.wakeAll(context.Background())
		}
		once.Do(func() { go begin(mgr, starter, l) })
	})
	return nil
}

// begin waits until the API server serves both kinds: it announces a definition before that.
func begin(mgr ctrl.Manager, starter *kinds.Starter, l *loop) {
	ctx := context.Background()
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, kind := range []identity.Kind{identity.KindDisaggregatedSet, identity.KindDisaggregatedSetRoleScaler} {
			if served, err := starter.Served(ctx, dsv1.GroupVersion.WithKind(string(kind))); err != nil || served.Resource == "" {
				return false, nil
			}
		}
		return true, nil
	})
	if err == nil {
		err = l.setup(ctx, mgr)
	}
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Failed to set up the controller of DisaggregatedSets")
	}
}

func newLoop(mgr ctrl.Manager, definition *definitioncache.Definition) *loop {
	requests := &requests{}
	known := memory.New()
	actor := apply.New(mgr.GetClient(), mgr.GetAPIReader())
	return &loop{
		Executor: reconcile.Executor{
			Memory: known, Writer: func() reconcile.Writer { return actor.ForReconcile() }, Together: apply.AtOnce,
			Report: report.New(mgr.GetEventRecorder(Name)), Now: time.Now,
			Wake: func(set client.Object) { requests.add(client.ObjectKeyFromObject(set)) },
		},
		observer: &disaggregatedcache.Observer{Sets: mgr.GetClient(), Live: mgr.GetAPIReader(), Memory: known, Beyond: definition.BeyondOf},
		requests: requests,
	}
}

// setup starts the watches.
func (l *loop) setup(ctx context.Context, mgr ctrl.Manager) error {
	beside, err := disaggregatedcache.Beside(ctx, mgr, report.WatchFailed)
	if err != nil {
		return err
	}
	if err := mgr.Add(beside); err != nil {
		return err
	}
	l.observer.Beside = beside
	labelled := handler.EnqueueRequestsFromMapFunc(setOf)
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		WithOptions(turn.Options(workers)).
		Watches(&dsv1.DisaggregatedSet{}, watch(ownKey, changed)).
		Watches(&dsv1.DisaggregatedSetRoleScaler{}, watch(setOf, changed)).
		Watches(&lwsv1.LeaderWorkerSet{}, watch(setOf, changed)).
		Watches(&corev1.Pod{}, watch(setOf, progressed)).
		WatchesRawSource(source.Kind[client.Object](beside, &corev1.Service{}, labelled)).
		WatchesRawSource(source.Kind[client.Object](beside, &appsv1.ControllerRevision{}, labelled)).
		WatchesRawSource(l.requests).
		Complete(runtimereconcile.Func(l.reconcile))
}

// reconcile reads a set, decides about it, and writes what was decided.
func (l *loop) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	now := l.Now()
	reading, cancel := context.WithTimeout(ctx, reconcile.ReadFor)
	defer cancel()
	w, err := l.observer.Set(reading, req.NamespacedName, now)
	if apierrors.IsNotFound(err) {
		l.Memory.Forget(req.NamespacedName)
		report.RolesStand(req.NamespacedName, nil, nil, 0)
	}
	if err != nil {
		return reconcile.Undecided(req, err)
	}
	plan, err := set.Decide(w)
	if err != nil {
		return reconcile.Undecided(req, err)
	}
	if standing := plan.Standing; standing != nil {
		report.RolesStand(req.NamespacedName, standing.Roles, standing.Wanted, standing.Pairs)
	} else {
		report.RolesStand(req.NamespacedName, nil, nil, 0)
	}
	return l.CarryOut(ctx, reconcile.Request{Object: w.Set, Waiting: w.Set.UID, IsApart: true}, plan.Plan)
}

// wakeAll reconciles every set soon: a new definition changes none of them.
func (l *loop) wakeAll(ctx context.Context) {
	if l.observer.Beside == nil {
		return // the controller has not started: it reads everything then
	}
	for _, key := range l.observer.SetNames(ctx) {
		l.requests.add(key)
	}
}
