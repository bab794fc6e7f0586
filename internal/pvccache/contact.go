package pvccache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// contact tells whether a memory follows the API server. It does not once a list or a
// watch has failed, until another one answers: what came or changed meanwhile it does
// not show, though it was full before. The webhook that converts a kind may be down, or
// a permission gone.
type contact struct {
	isLost atomic.Bool
	// wasThere: one has answered.
	wasThere atomic.Bool
	// found is when one answered again, or nil.
	found atomic.Pointer[time.Time]
	// asked is since when one has not been answered, or nil.
	asked atomic.Pointer[time.Time]
}

// answersWithin is how long an answer may take. A client asks for minutes itself before it
// says that there is none.
const answersWithin = 2 * time.Second

// takenInAfter is how long it takes until memory shows what came while contact was lost. No
// word comes with the last of it.
const takenInAfter = 5 * time.Second

// answeredFor is how long a watch lasts that says nothing and is an answer all the same. Of
// a connection that breaks, or of none, a client makes a watch that is over.
const answeredFor = time.Second

// lost tells whether the memory may lack what there is.
func (c *contact) lost() bool {
	if c.isLost.Load() || c.awaits() {
		return true
	}
	found := c.found.Load()
	return found != nil && time.Since(*found) < takenInAfter
}

// awaits tells whether an answer is overdue.
func (c *contact) awaits() bool {
	asked := c.asked.Load()
	return asked != nil && time.Since(*asked) >= answersWithin
}

// answered takes note that there is an answer, or that there will be none.
func (c *contact) answered() {
	if c.awaits() {
		c.isLost.Store(true)
	}
	c.asked.Store(nil)
}

func (c *contact) note(err error) { c.lose(err != nil) }

func (c *contact) lose(isLost bool) {
	if !isLost && c.isLost.Load() && c.wasThere.Load() {
		c.found.Store(new(time.Now()))
	}
	c.isLost.Store(isLost)
	if !isLost {
		c.wasThere.Store(true)
	}
}

// over is the same list and watch, listened to.
func (c *contact) over(lw *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			c.asked.Store(new(time.Now()))
			list, err := lw.ListWithContext(ctx, options)
			c.answered()
			if err != nil || isLastPage(list) {
				c.note(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			c.asked.Store(new(time.Now()))
			w, err := lw.WatchWithContext(ctx, options)
			c.answered()
			if err != nil {
				c.note(err)
				return nil, err
			}
			isWhole := options.SendInitialEvents == nil // else it has yet to send what there is, or an error
			if isWhole {
				c.note(nil)
			}
			return c.hearing(w, isWhole), nil
		},
	}
}

// isLastPage tells whether no page of a list is to come, which may fail.
func isLastPage(list runtime.Object) bool {
	m, err := meta.ListAccessor(list)
	return err != nil || m.GetContinue() == ""
}

// hearing is a watch whose events are heard on their way. Before it is whole, one that
// comes is no answer: another may not be read.
func (c *contact) hearing(w watch.Interface, isWhole bool) watch.Interface {
	h := &heard{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	began, isSilent := time.Now(), true
	h.ended = func() {
		if isSilent && time.Since(began) < answeredFor {
			c.lose(true)
		}
	}
	go h.hear(func(event watch.Event) {
		isSilent = false
		isWhole = isWhole || endsInitial(event)
		if isError := event.Type == watch.Error; isError || isWhole {
			c.lose(isError)
		}
	})
	return h
}

// endsInitial tells whether all has been sent that there was when a watch began.
func endsInitial(event watch.Event) bool {
	if event.Type != watch.Bookmark {
		return false
	}
	m, err := meta.Accessor(event.Object)
	return err == nil && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// heard is a watch that somebody listens to.
type heard struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
	// ends is when it may end, or zero for at any time.
	ends time.Time
	// ended is called when it ends without having been stopped, or is nil.
	ended func()
}

// hear passes events on until there are no more, or nobody listens any more.
func (h *heard) hear(tell func(watch.Event)) {
	defer close(h.events)
	for {
		select {
		case event, ok := <-h.Interface.ResultChan():
			if !ok {
				h.over()
				return
			}
			tell(event)
			select {
			case h.events <- event:
			case <-h.stopped:
				return
			}
		case <-h.stopped:
			return
		}
	}
}

// over tells that it ends, unless it was stopped, and waits until it may.
func (h *heard) over() {
	select {
	case <-h.stopped:
		return
	default:
	}
	if h.ended != nil {
		h.ended()
	}
	select {
	case <-time.After(time.Until(h.ends)):
	case <-h.stopped:
	}
}

// ResultChan implements watch.Interface.
func (h *heard) ResultChan() <-chan watch.Event { return h.events }

// Stop implements watch.Interface.
func (h *heard) Stop() {
	h.stop.Do(func() { close(h.stopped) })
	h.Interface.Stop()
}
