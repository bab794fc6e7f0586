package interleave

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// errLost is the error of a request whose connection broke.
var errLost = errors.New("connection lost")

// call is one request that has not arrived.
type call struct {
	from   string
	by     actor
	says   string
	writes bool
	run    func() error
	reply  chan error
	// late is set when the sender has crashed.
	late bool
}

func (c *call) String() string {
	if c.late {
		return c.from + ", before it crashed: " + c.says
	}
	return c.from + ": " + c.says
}

// wire holds requests until the schedule lets them arrive.
type wire struct {
	mu    sync.Mutex
	calls []*call
}

// send returns when the request was answered, or its sender has crashed. A write may arrive after
// that.
func (w *wire) send(ctx context.Context, c *call) error {
	c.reply = make(chan error, 1)
	w.mu.Lock()
	w.calls = append(w.calls, c)
	w.mu.Unlock()
	select {
	case err := <-c.reply:
		return err
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		c.late = true
		if !c.writes {
			w.calls = slices.DeleteFunc(w.calls, func(other *call) bool { return other == c })
		}
		return ctx.Err()
	}
}

// underWay returns the requests that have not arrived, in an order that does not depend on the
// goroutines.
func (w *wire) underWay() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.calls, func(a, b *call) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Clone(w.calls)
}

// arrive carries out a request, and answers it.
func (w *wire) arrive(c *call) { w.refuse(c, c.run()) }

// unanswered carries out a request. Its sender gets an error.
func (w *wire) unanswered(c *call) {
	_ = c.run()
	w.refuse(c, errLost)
}

// refuse answers a request that is not carried out.
func (w *wire) refuse(c *call, why error) {
	w.mu.Lock()
	w.calls = slices.DeleteFunc(w.calls, func(other *call) bool { return other == c })
	w.mu.Unlock()
	c.reply <- why
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
