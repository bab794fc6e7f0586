package observe

import (
	"context"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// contact tells whether a memory follows the API server. It does not once a list or a
// watch has failed, until another one answers: what came or changed meanwhile it does
// not show, though it was full before. The webhook that converts a kind may be down, or
// a permission gone.
type contact struct{ isLost atomic.Bool }

func (c *contact) note(err error) { c.isLost.Store(err != nil) }

// over is the same list and watch, listened to.
func (c *contact) over(lw *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.ListWithContext(ctx, options)
			c.note(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := lw.WatchWithContext(ctx, options)
			if err != nil {
				c.note(err)
				return nil, err
			}
			if options.SendInitialEvents == nil { // else it has yet to send what there is, or an error
				c.note(nil)
			}
			return c.hearing(w), nil
		},
	}
}

// hearing is a watch whose events are heard on their way.
func (c *contact) hearing(w watch.Interface) watch.Interface {
	h := &heard{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	go func() {
		defer close(h.events)
		for event := range w.ResultChan() {
			c.isLost.Store(event.Type == watch.Error)
			select {
			case h.events <- event:
			case <-h.stopped:
				return
			}
		}
	}()
	return h
}

// heard is a watch that somebody listens to.
type heard struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
}

// ResultChan implements watch.Interface.
func (h *heard) ResultChan() <-chan watch.Event { return h.events }

// Stop implements watch.Interface.
func (h *heard) Stop() {
	h.stop.Do(func() { close(h.stopped) })
	h.Interface.Stop()
}
