package interleave

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// builtIn is the built-in protection of PVCs, as of 1.37.1: one worker judges all PVCs of a batch by
// one list of pods, read when the first of them needs it. It reads PVCs that are not deleted, too.
type builtIn struct {
	world  *world
	claims *informer[*corev1.PersistentVolumeClaim]
	pods   *informer[*corev1.Pod]
	crash  context.CancelFunc

	mu    sync.Mutex
	queue []string
	more  chan struct{}
}

func (w *world) startBuiltIn() {
	ctx, cancel := context.WithCancel(w.ctx)
	b := &builtIn{
		world: w, crash: cancel, more: make(chan struct{}, 1),
		claims: newInformer(&w.store.claimLog, w.store.claims()), pods: newInformer(&w.store.podLog, w.store.pods()),
	}
	w.builtIn = b
	claimHeard := func(object any) {
		if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
			b.add(claim.Name)
		}
	}
	podHeard := func(object any) {
		if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		b.add(pvc.ClaimsOf(object.(*corev1.Pod))...)
	}
	_, _ = b.claims.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: claimHeard, UpdateFunc: func(_, now any) { claimHeard(now) },
	})
	_, _ = b.pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: podHeard, DeleteFunc: podHeard, UpdateFunc: func(was, now any) { podHeard(was); podHeard(now) },
	})
	go b.work(ctx)
}

func (b *builtIn) add(names ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		if !slices.Contains(b.queue, name) {
			b.queue = append(b.queue, name)
		}
	}
	select {
	case b.more <- struct{}{}:
	default:
	}
}

func (b *builtIn) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch := b.queue
	b.queue = nil
	return batch
}

func (b *builtIn) work(ctx context.Context) {
	for {
		select {
		case <-b.more:
		case <-ctx.Done():
			return
		}
		batch := &listOnce{builtIn: b}
		for _, name := range b.take() {
			if err := b.process(ctx, name, batch); err != nil && ctx.Err() == nil {
				time.AfterFunc(20*time.Millisecond, func() { b.add(name) })
			}
		}
	}
}

func (b *builtIn) process(ctx context.Context, name string, pods *listOnce) error {
	if err := b.send(ctx, "turn to claim "+name, false, func() error { return nil }); err != nil {
		return err
	}
	claim, ok := b.claims.get(name)
	if !ok || claim.DeletionTimestamp != nil && !slices.Contains(claim.Finalizers, pvc.PodsFinalizer) {
		return nil
	}
	cached := pvc.NewIndex()
	for _, pod := range b.pods.all() {
		cached.See(pod)
	}
	if len(cached.Holding(claim)) > 0 {
		return nil
	}
	live, err := pods.get(ctx)
	if err != nil || claim.DeletionTimestamp == nil || len(live.Holding(claim)) > 0 {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(claim.Finalizers), func(f string) bool { return f == pvc.PodsFinalizer })
	return b.send(ctx, "take P from "+name, true, func() error {
		after := claim.DeepCopy()
		after.Finalizers = left
		patch := client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{})
		return b.world.store.Patch(context.Background(), after, patch)
	})
}

func (b *builtIn) send(ctx context.Context, says string, writes bool, run func() error) error {
	return b.world.wire.send(ctx, &call{from: "built-in", by: builtInArrives, says: says, writes: writes, run: run})
}

// listOnce reads pods once for a batch.
type listOnce struct {
	*builtIn
	index *pvc.Index
}

func (l *listOnce) get(ctx context.Context) (*pvc.Index, error) {
	if l.index != nil {
		return l.index, nil
	}
	index := pvc.NewIndex()
	err := l.send(ctx, "list pods", false, func() error {
		for _, name := range sorted(l.world.store.pods()) {
			index.See(l.world.store.pods()[name])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.index = index
	return index, nil
}
