// Package pvcfinalizer adds missing finalizers to PVCs, and removes them one by one from
// terminating PVCs that no pod uses.
//
// It knows which events concern which PVCs, and the order of reads, decisions and writes. It
// refuses to know when a PVC is in use, and when a finalizer may go.
//
//	PVC, pod, namespace ─► queue ─► PVCs of one namespace ─► pvc.Decide, by the caches
//	                         ▲                                   │ Look
//	                         │                                   ▼
//	                  retry, stale ◄── apply.Do ◄── Judge ◄── one live read of pods
package pvcfinalizer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

const (
	// readers is the number of namespaces that are read at a time.
	readers = 8
	// writers is the number of writes at a time, of all passes together.
	writers = 32
	// gatherFor is how long PVCs are gathered: those of pods that end together share a read.
	gatherFor = 100 * time.Millisecond
	// firstRetry and lastRetry bound the pause before a failed PVC is tried again.
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Minute
)

// Options are what a Controller works with.
type Options struct {
	Settings pvc.Settings
	// Caches must have pvccache.ProtectionCaches.
	Caches ctrlcache.Cache
	// Live must not read from a cache.
	Live     client.Reader
	Pods     *pvccache.Pods
	Actor    *apply.Actor
	Recorder events.EventRecorder
	Log      logr.Logger
}

// Controller is the finalizing controller. It runs on the replica with the lease.
type Controller struct {
	Options
	// Report has metrics for the manager.
	Report *report.Protection
	reader *pvccache.PodReader
	// queue has the PVCs that wait for a pass, or for their retry.
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
	// writes is full while so many PVCs are written as may be.
	writes  chan struct{}
	working sync.WaitGroup
	// unfinished counts the PVCs in passes.
	unfinished atomic.Int64
}

// New returns a Controller. It does nothing until it is started.
func New(o Options) *Controller {
	c := &Controller{
		Options: o, writes: make(chan struct{}, writers),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry)),
	}
	c.Report = report.NewProtection(o.Recorder, time.Now, c.depth)
	c.reader = &pvccache.PodReader{Pods: o.Pods, Live: o.Live, Report: c.Report.Read}
	return c
}

// NeedLeaderElection makes one replica do the work.
func (c *Controller) NeedLeaderElection() bool { return true }

// Start works until ctx ends. Nothing is decided before all caches are full: a pod
// that is not there yet is not a pod that is gone.
func (c *Controller) Start(ctx context.Context) error {
	ctx = logr.NewContext(ctx, c.Log)
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	if !c.Caches.WaitForCacheSync(ctx) || c.Pods.AwaitSync(ctx) != nil {
		return nil // the process ends
	}
	err := pvccache.FollowPVCs(ctx, c.Caches, c.Pods, func(key types.NamespacedName) { c.queue.Add(key) })
	if err != nil {
		return fmt.Errorf("follow PVCs: %w", err)
	}
	for batches := c.take(); len(batches) > 0; batches = c.take() {
		workqueue.ParallelizeUntil(context.WithoutCancel(ctx), readers, len(batches), func(i int) {
			p := c.judge(ctx, batches[i])
			c.working.Go(func() { p.write(ctx) })
		})
	}
	c.working.Wait()
	return nil
}

// take waits for PVCs, and returns those of each namespace. PVCs that come during a read wait for
// the next one, which may run beside the writes of this one.
func (c *Controller) take() [][]types.NamespacedName {
	batches := map[string][]types.NamespacedName{}
	for key, ended := c.queue.Get(); !ended; key, ended = c.queue.Get() {
		if len(batches) == 0 {
			time.Sleep(gatherFor)
		}
		batches[key.Namespace] = append(batches[key.Namespace], key)
		c.unfinished.Add(1)
		if c.queue.Len() == 0 {
			break
		}
	}
	return slices.Collect(maps.Values(batches))
}

// done ends the work on a PVC. again retries it, later each time.
func (c *Controller) done(key types.NamespacedName, again bool) {
	if again {
		c.queue.AddRateLimited(key)
	} else {
		c.queue.Forget(key)
	}
	c.queue.Done(key)
	c.unfinished.Add(-1)
}

func (c *Controller) depth() int { return c.queue.Len() + int(c.unfinished.Load()) }

const (
	volumeWorkers = 4
	// volumeAgain is how soon a PersistentVolume that changed since the read is read again,
	// unless an event comes first.
	volumeAgain = 50 * time.Millisecond
)

// Volumes adds and removes the finalizer of PersistentVolumes where the built-in controller
// is off.
type Volumes struct {
	// Cached must have pvccache.VolumeCaches.
	Cached client.Reader
	Actor  *apply.Actor
	Report *report.Protection
}

// Setup adds it to the manager.
func (v *Volumes) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("volume-protection").
		For(&corev1.PersistentVolume{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: volumeWorkers, EnableWarmup: new(true)}).
		Complete(v)
}

// Reconcile judges one PersistentVolume.
func (v *Volumes) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	volume := &corev1.PersistentVolume{}
	if err := v.Cached.Get(ctx, req.NamespacedName, volume); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	a, ok := pvc.DecideVolume(volume)
	if !ok {
		return ctrl.Result{}, nil
	}
	_, err := v.Actor.Do(ctx, a)
	v.Report.Wrote(ctx, a, err)
	switch {
	case err == nil, errors.Is(err, apply.ErrGone):
		return ctrl.Result{}, nil
	case errors.Is(err, apply.ErrStale):
		return ctrl.Result{RequeueAfter: volumeAgain}, nil
	}
	return ctrl.Result{}, fmt.Errorf("%s %s: %w", a.About().Verb, a.Object, err)
}
