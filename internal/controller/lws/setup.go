package lws

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lwscache"
	"lockstep.dev/lockstep/internal/report"
)

// Name is the name of the controllers of sets and their groups.
const Name = "leaderworkerset"

const (
	setWorkers   = 16
	groupWorkers = 32
	// wakes bounds how many sets may be waiting to be woken by their groups.
	wakes = 1024
)

// ClientOptions returns the options for the manager's client: a look waits until
// the cache shows this process's own writes, so that no decision is made from a
// world before them.
func ClientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: new(true)}}
}

// Setup adds the controllers to the manager. Its client must read its own writes.
func Setup(mgr ctrl.Manager) error {
	indexes, err := lwscache.NewIndexes(context.Background(), mgr.GetCache())
	if err != nil {
		return err
	}
	if err := lwscache.IndexOthers(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return err
	}
	for _, collector := range report.Metrics() {
		_ = metrics.Registry.Register(collector) // registered already by an earlier setup in this process
	}
	memory := lwscache.NewMemory()
	wake := make(chan event.GenericEvent, wakes)
	groups, err := newPodGroups(mgr)
	if err != nil {
		return err
	}
	observer := lwscache.New(mgr.GetClient(), mgr.GetAPIReader(), memory).WithGangs(groups).WithIndexes(indexes)
	p := &pass{
		observe: observer,
		memory:  memory,
		act:     apply.New(mgr.GetClient(), mgr.GetAPIReader()).Surveying(observer.Standing),
		narrate: report.New(mgr.GetEventRecorder(Name)),
		now:     time.Now,
	}
	ended := make(chan struct{})
	p.wakeSet = waker(wake, ended)
	if err := mgr.Add(whileLeading(ended)); err != nil {
		return fmt.Errorf("set up the beginning and the end: %w", err)
	}
	if err := setupSets(mgr, p, wake, groups); err != nil {
		return fmt.Errorf("set up the set controller: %w", err)
	}
	if err := setupGroups(mgr, p, groups); err != nil {
		return fmt.Errorf("set up the group controller: %w", err)
	}
	return nil
}

// whileLeading closes ended when this replica stops leading.
func whileLeading(ended chan<- struct{}) manager.RunnableFunc {
	return func(ctx context.Context) error {
		<-ctx.Done()
		close(ended)
		return nil
	}
}

// waker sends objects to a queue, which takes them as soon as it runs. Before that
// nobody sends, and at the end nobody waits.
func waker(wake chan<- event.GenericEvent, ended <-chan struct{}) func(client.Object) {
	return func(object client.Object) {
		select {
		case wake <- event.GenericEvent{Object: object}:
		case <-ended:
		}
	}
}

const (
	retrySoonest = 5 * time.Millisecond
	// retryAtMost bounds how long an error that is over may go on to cost.
	retryAtMost = 30 * time.Second
)

// options warm the caches of a replica that does not lead, so that it can take
// over at once. Whose errors go on is tried again ever more slowly, and holds up
// nobody else's.
func options(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers, EnableWarmup: new(true),
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](retrySoonest, retryAtMost),
	}
}

func setupSets(mgr ctrl.Manager, p *pass, wake <-chan event.GenericEvent, groups *lwscache.PodGroups) error {
	pace := newPace(p.now)
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		WithOptions(options(setWorkers)).
		Watches(&lwsv1.LeaderWorkerSet{}, pace.watch(byOwnName, desire, 0)).
		Watches(&lwsv1.LeaderWorkerSet{}, pace.watch(byOwnName, told, reread)).
		Watches(&appsv1.StatefulSet{}, pace.watch(setsOf, standing, gather)).
		Watches(&corev1.Pod{}, pace.watch(setOfPod(p.memory), podProgress, gather)).
		Watches(&corev1.Pod{}, pace.restarts()).
		Watches(&corev1.Service{}, pace.watch(setsOf, publishing, 0)).
		Watches(&appsv1.ControllerRevision{}, pace.watch(setOfRevision, always, 0)).
		WatchesMetadata(lws.NewVolume("", ""), pace.watch(setOfVolume, belonging, gather)).
		WatchesRawSource(source.Channel(wake, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(gangEvents(groups, setOfGang, gather, p.observe.SetNames)).
		Complete(&setReconciler{pass: p, pace: pace})
}

func setupGroups(mgr ctrl.Manager, p *pass, groups *lwscache.PodGroups) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("group").
		WithOptions(options(groupWorkers)).
		Watches(&corev1.Pod{}, watch(groupOfPod, podProgress, 0)).
		Watches(&appsv1.StatefulSet{}, watch(groupsOfStatefulSet(p.observe), altered, 0)).
		Watches(&corev1.Service{}, watch(byOwnName, publishing, 0)).
		WatchesMetadata(lws.NewVolume("", ""), watch(groupOfVolume, belonging, 0)).
		Watches(&appsv1.ControllerRevision{}, watch(groupsOfRevision(p.observe), never, 0)).
		Watches(&lwsv1.LeaderWorkerSet{}, watch(groupsOf(p.observe, keyOf), groupDesire, 0)).
		Watches(&lwsv1.LeaderWorkerSet{}, recorded()).
		WatchesRawSource(gangEvents(groups, groupOfGang, 0, everyGroup(p.observe))).
		Complete(&groupReconciler{p})
}
