package pvcfinalizer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

const (
	// workers is how many namespaces are looked at side by side.
	workers = 8
	// writes is how many writes of one namespace are under way at a time.
	writes = 32
	// gatherFor is how long claims are waited for after the first, where a reading of
	// pods may cost much: those of pods that go together share one.
	gatherFor = 50 * time.Millisecond
)

// Options are what a Controller works with.
type Options struct {
	Settings pvc.Settings
	// Caches are those of observe.ProtectionCaches.
	Caches ctrlcache.Cache
	Claims *pvccache.Claims
	Pods   *pvccache.Pods
	// PodReader makes the PodReader; told is where it tells of its readings.
	PodReader func(told func(pvccache.PodRead)) *pvccache.PodReader
	Actor     *apply.Actor
	Recorder  events.EventRecorder
	Clock     clock.WithDelayedExecution
	Log       logr.Logger
}

// Controller is the finalizing controller. It runs where the lease is.
type Controller struct {
	settings pvc.Settings
	caches   ctrlcache.Cache
	claims   *pvccache.Claims
	pods     *pvccache.Pods
	look     *pvccache.PodReader
	act      *apply.Actor
	narrate  *report.Protection
	backlog  *backlog
	log      logr.Logger
	now      func() time.Time

	mu sync.Mutex
	// doubted holds the version of claims that were written onto, or that turned out
	// to be older than they are: one that the cache still shows so is read live.
	doubted map[types.NamespacedName]string
}

// New returns a Controller. It does nothing until it is started.
func New(o Options) *Controller {
	c := &Controller{
		settings: o.Settings, caches: o.Caches, claims: o.Claims, pods: o.Pods, act: o.Actor,
		backlog: newBacklog(o.Clock, gathering(o.Pods)), now: o.Clock.Now,
		doubted: map[types.NamespacedName]string{}, log: o.Log,
	}
	c.narrate = report.NewProtection(o.Recorder, o.Clock.Now, c.backlog.depth)
	c.look = o.PodReader(func(r pvccache.PodRead) { c.narrate.Read(r.By, r.Duration, r.Err) })
	return c
}

// Narrator is where the controller tells of its work, for its metrics.
func (c *Controller) Narrator() *report.Protection { return c.narrate }

// NeedLeaderElection has one replica do the work.
func (c *Controller) NeedLeaderElection() bool { return true }

// Start works until ctx ends. Nothing is decided before all caches are full: a pod
// that is not there yet is not a pod that is gone.
func (c *Controller) Start(ctx context.Context) error {
	ctx = logr.NewContext(ctx, c.log)
	if !c.caches.WaitForCacheSync(ctx) {
		return nil // the process ends
	}
	if err := c.pods.AwaitSync(ctx); err != nil {
		return nil //nolint:nilerr // the same
	}
	if err := c.follow(ctx); err != nil {
		return err
	}
	var working sync.WaitGroup
	c.narrate.Begin(c.now())
	for range workers {
		working.Go(func() { c.work(ctx) })
	}
	working.Wait()
	return nil
}

// follow has every event fill the backlog. All claims that are there come as
// events of their own.
func (c *Controller) follow(ctx context.Context) error {
	if err := c.pods.Follow(c.podChanged); err != nil {
		return fmt.Errorf("follow pods: %w", err)
	}
	for _, watched := range []struct {
		object  client.Object
		handler cache.ResourceEventHandler
	}{
		{&corev1.PersistentVolumeClaim{}, c.claimEvents()},
		{pvccache.NewNamespace(""), c.namespaceEvents(ctx)},
	} {
		informer, err := c.caches.GetInformer(ctx, watched.object)
		if err != nil {
			return fmt.Errorf("watch %T: %w", watched.object, err)
		}
		if _, err := informer.AddEventHandler(watched.handler); err != nil {
			return fmt.Errorf("follow %T: %w", watched.object, err)
		}
	}
	return nil
}

func (c *Controller) work(ctx context.Context) {
	for {
		keys := c.backlog.take(ctx)
		if len(keys) == 0 {
			return
		}
		c.process(ctx, keys)
		for _, key := range keys {
			c.backlog.done(key)
		}
	}
}

// gathering tells for how long a namespace gathers claims.
func gathering(pods *pvccache.Pods) func(namespace string) time.Duration {
	return func(namespace string) time.Duration {
		if pods.IsLarge(namespace) {
			return gatherFor
		}
		return 0
	}
}
