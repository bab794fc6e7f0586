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
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	gatherFor = 50 * time.Millisecond
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
	report *report.Protection
	reader *pvccache.PodReader
	// queue has the PVCs that wait for a pass, or for their retry.
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
	// reads is full while so many namespaces are read as may be.
	reads chan struct{}
	// writes is full while so many PVCs are written as may be.
	writes  chan struct{}
	working sync.WaitGroup

	mu sync.Mutex
	// batches are the PVCs that wait for the next read of their namespace. A namespace is
	// there while a goroutine works on it.
	batches map[string][]types.NamespacedName
	// unfinished counts the PVCs in batches and in passes.
	unfinished int
}

// New returns a Controller. It does nothing until it is started.
func New(o Options) *Controller {
	c := &Controller{
		Options: o, reads: make(chan struct{}, readers), writes: make(chan struct{}, writers),
		batches: map[string][]types.NamespacedName{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry)),
	}
	c.report = report.NewProtection(o.Recorder, time.Now, c.depth)
	c.reader = &pvccache.PodReader{Pods: o.Pods, Live: o.Live, Report: c.report.Read}
	return c
}

// Report is what the controller reports to, for its metrics.
func (c *Controller) Report() *report.Protection { return c.report }

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
	if err := c.follow(ctx); err != nil {
		return err
	}
	for key, ended := c.queue.Get(); !ended; key, ended = c.queue.Get() {
		c.gather(ctx, key)
	}
	c.working.Wait()
	return nil
}

// follow fills the queue with all PVCs, and with those that later events concern.
func (c *Controller) follow(ctx context.Context) error {
	if err := c.Pods.Follow(c.podChanged); err != nil {
		return fmt.Errorf("follow pods: %w", err)
	}
	if err := pvccache.Follow(ctx, c.Caches, &corev1.PersistentVolumeClaim{}, c.claimChanged); err != nil {
		return fmt.Errorf("follow PVCs: %w", err)
	}
	if err := pvccache.Follow(ctx, c.Caches, pvccache.NewNamespace(""), c.namespaceChanged); err != nil {
		return fmt.Errorf("follow namespaces: %w", err)
	}
	return nil
}

// gather adds a PVC to the next batch of its namespace.
func (c *Controller) gather(ctx context.Context, key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch, working := c.batches[key.Namespace]
	c.batches[key.Namespace] = append(batch, key)
	c.unfinished++
	if !working {
		c.working.Go(func() { c.work(ctx, key.Namespace) })
	}
}

// work judges the PVCs of a namespace until none waits. Those that come during a read share
// the next one, which may run beside the writes of this one.
func (c *Controller) work(ctx context.Context, namespace string) {
	time.Sleep(gatherFor)
	for keys := c.take(namespace); len(keys) > 0; keys = c.take(namespace) {
		c.reads <- struct{}{}
		p := c.judge(ctx, keys)
		<-c.reads
		c.working.Go(func() { p.write(ctx) })
	}
}

// take returns the batch of a namespace, or ends the work on it.
func (c *Controller) take(namespace string) []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := c.batches[namespace]
	if c.batches[namespace] = nil; len(keys) == 0 {
		delete(c.batches, namespace)
	}
	return keys
}

// done ends the work on a PVC. again retries it, later each time.
func (c *Controller) done(key types.NamespacedName, again bool) {
	if again {
		c.queue.AddRateLimited(key)
	} else {
		c.queue.Forget(key)
	}
	c.queue.Done(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unfinished--
}

func (c *Controller) depth() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unfinished
}
