// Package lws reconciles LeaderWorkerSets and their groups.
//
// It knows which watch event concerns which set or group. It refuses to know what a reconcile does: package
// reconcile/lws does that.
//
// All reconcilers share one loop, its memory and most watches: one package holds them.
package lws

import (
	"context"
	"io"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	runtimereconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/budgetcache"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/gangcache"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/lws/volumes"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/reconcile"
	reconcilelws "lockstep.dev/lockstep/internal/reconcile/lws"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/internal/turn"
)

// Name is the name of the controllers of sets and their groups.
const Name = "leaderworkerset"

const (
	setWorkers   = 16
	groupWorkers = 32
	// logWorkers is how many groups have the logs of their failed containers read at once.
	logWorkers = 8

	// failuresPerSecond and failuresAtOnce bound how fast failed groups of a namespace are recreated.
	failuresPerSecond, failuresAtOnce = 10, 50
)

// ClientOptions returns the options for the manager's client: a read waits until the cache shows
// this process's own writes.
func ClientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: new(true)}}
}

// Setup adds the controllers to the manager. Its client must read its own writes. The starter
// watches the objects of gang schedulers once it runs. Of the logs of failed containers, the last
// lines are kept, or none.
// scheduler places sets with spec.scheduling, or is empty. limitsEvictions and deadline hold for sets without the annotation.
func Setup(mgr ctrl.Manager, starter *kinds.Starter, scheduler string, limitsEvictions bool, deadline time.Duration, crashLogLines int64) error {
	if err := lwscache.Index(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return err
	}
	reporter := report.New(mgr.GetEventRecorder(Name))
	for _, collector := range reporter.Metrics() {
		_ = metrics.Registry.Register(collector) // registered already by an earlier setup in this process
	}
	sets, groups := &requests{}, &requests{}
	memory := lwscache.NewMemory()
	observer := lwscache.New(mgr.GetClient(), mgr.GetAPIReader(), memory)
	observer.ProgressDeadline = deadline
	watchGangs(starter, observer, scheduler, sets, groups)
	watched := &budgetcache.Watch{Manager: mgr, Failed: report.WatchFailed, Changed: func(budget *policyv1.PodDisruptionBudget) {
		named := budget.Labels[lwsv1.SetNameLabelKey] // none on a budget of a user, which concerns all sets beside it
		sets.add(gather, slices.DeleteFunc(observer.SetNames(context.Background()), func(set types.NamespacedName) bool {
			return set.Namespace != budget.Namespace || named != "" && named != set.Name
		})...)
	}}
	observer.Budgets = budgetcache.Budgets{ByDefault: limitsEvictions, Reader: watched.Reader}
	for kind, object := range map[identity.Kind]client.Object{identity.KindPod: &corev1.Pod{}, identity.KindStatefulSet: &appsv1.StatefulSet{}, identity.KindService: &corev1.Service{}} {
		informer, err := mgr.GetCache().GetInformer(context.Background(), object, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		if shared, ok := informer.(toolscache.SharedIndexInformer); ok {
			observer.Stores[kind] = shared.GetIndexer()
		}
	}
	definition := lwscache.NewDefinition(mgr.GetAPIReader())
	observer.Definition = definition
	starter.OnDefinition(lwscache.DefinitionName, func(is metav1.Object) {
		if definition.Changed(is) {
			sets.add(gather, observer.SetNames(context.Background())...)
			groups.add(0, everyGroup(observer)...)
		}
	})
	actor := apply.New(mgr.GetClient(), mgr.GetAPIReader())
	loop := &reconcilelws.Loop{
		Executor: reconcile.Executor{
			Memory:   memory.Memory,
			Writer:   func() reconcile.Writer { return actor.ForReconcile() },
			Together: apply.AtOnce,
			Report:   reporter,
			Now:      time.Now,
			Wake:     func(set client.Object) { sets.add(0, keyOf(set)) },
		},
		Observer: observer,
		Failures: turn.NewPace(failuresPerSecond, failuresAtOnce, time.Now),
	}
	if err := setupSets(mgr, loop, memory, sets); err != nil {
		return err
	}
	if err := setupGroups(mgr, loop, groups); err != nil || crashLogLines == 0 {
		return err
	}
	return setupLogs(mgr, loop, crashLogLines)
}

// watchGangs makes the observer read the objects of gang schedulers from memory, and wakes the sets and groups
// that they concern. Those of Kubernetes' own scheduler are watched where that is to place sets.
func watchGangs(starter *kinds.Starter, observer *lwscache.Observer, scheduler string, sets, groups *requests) {
	turned := func() {
		sets.add(gather, observer.SetNames(context.Background())...)
		groups.add(0, everyGroup(observer)...)
	}
	podGroup := func(object *unstructured.Unstructured) {
		sets.add(gather, setOf(object)...)
		groups.add(0, groupsOfPodGroup(observer, object)...)
	}
	observer.Gangs, observer.Scheduler = gangcache.Watch(starter, gang.Kind, podGroup, turned), scheduler
	if scheduler != gang.Kubernetes {
		return
	}
	workload := func(object *unstructured.Unstructured) {
		sets.add(0, setOf(object)...)
		groups.add(0, groupsUnder(observer, labelledSet(object))...)
	}
	observer.Workloads = gangcache.Watch(starter, gang.WorkloadKind, workload, turned)
	observer.PodGroups = gangcache.Watch(starter, gang.NativePodGroupKind, podGroup, turned)
}

func setupSets(mgr ctrl.Manager, loop *reconcilelws.Loop, memory *lwscache.Memory, added *requests) error {
	pace := newPace(loop.Now)
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		WithOptions(turn.Options(setWorkers)).
		Watches(&lwsv1.LeaderWorkerSet{}, pace.watch(byOwnName, desire, 0)).
		Watches(&lwsv1.LeaderWorkerSet{}, pace.watch(byOwnName, statusChanged, reread)).
		Watches(&appsv1.StatefulSet{}, pace.watch(setsOf, statefulSetProgress, gather)).
		Watches(&appsv1.Deployment{}, pace.watch(setsOf, deploymentProgress, gather)).
		Watches(&appsv1.ReplicaSet{}, pace.watch(setOf, ownership, gather)).
		Watches(&corev1.Pod{}, pace.watch(setOfPod(memory), podProgress, gather)).
		Watches(&corev1.Pod{}, pace.restarts()).
		Watches(&corev1.Pod{}, pace.members()).
		Watches(&corev1.Service{}, pace.watch(setsOf, serviceChanged, 0)).
		Watches(&appsv1.ControllerRevision{}, pace.watch(setOfRevision, always, 0)).
		WatchesMetadata(volumes.Named("", ""), pace.watch(setOf, ownership, gather)).
		WatchesRawSource(added).
		Complete(runtimereconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			snapshot, result, err := loop.Set(ctx, req)
			pace.read(req.NamespacedName, snapshot)
			return result, err
		}))
}

func setupGroups(mgr ctrl.Manager, loop *reconcilelws.Loop, added *requests) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("group").
		WithOptions(turn.Options(groupWorkers)).
		Watches(&corev1.Pod{}, watch(groupOfPod, podProgress, 0)).
		Watches(&appsv1.StatefulSet{}, watch(groupsOfStatefulSet(loop.Observer), workersChanged, 0)).
		Watches(&appsv1.Deployment{}, watch(groupsOf(loop.Observer, labelledSet), deploymentChanged, 0)).
		Watches(&appsv1.ReplicaSet{}, watch(groupsOf(loop.Observer, labelledSet), ownership, 0)).
		Watches(&corev1.Service{}, watch(groupOfService, serviceChanged, 0)).
		WatchesMetadata(volumes.Named("", ""), watch(groupOfVolume, ownership, 0)).
		Watches(&appsv1.ControllerRevision{}, watch(groupsOfRevision(loop.Observer), never, 0)).
		Watches(&lwsv1.LeaderWorkerSet{}, watch(groupsOf(loop.Observer, keyOf), groupDesire, 0)).
		Watches(&lwsv1.LeaderWorkerSet{}, recorded(loop.Observer)).
		WatchesRawSource(added).
		Complete(runtimereconcile.Func(loop.Group))
}

// setupLogs adds the controller that reads the logs of failed containers. It has a queue of its own: no restart waits
// for it.
func setupLogs(mgr ctrl.Manager, loop *reconcilelws.Loop, lines int64) error {
	pods, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	loop.Observer.Logs = &lwscache.Logs{Lines: lines, Open: func(ctx context.Context, pod types.NamespacedName, o *corev1.PodLogOptions) (io.ReadCloser, error) {
		return pods.Pods(pod.Namespace).GetLogs(pod.Name, o).Stream(ctx)
	}}
	decision := func(object client.Object) string { return object.GetAnnotations()[restart.AnnotationKey] }
	decided := func(before, after client.Object) bool { return decision(before) != decision(after) }
	failed := predicate.NewPredicateFuncs(func(object client.Object) bool { return decision(object) != "" })
	return ctrl.NewControllerManagedBy(mgr).
		Named("crashlog").
		WithOptions(turn.Options(logWorkers)).
		Watches(&corev1.Pod{}, watch(byOwnName, decided, 0), builder.WithPredicates(failed)).
		Complete(runtimereconcile.Func(loop.Logs))
}
