package interleave

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// errLost is what a client hears of a request that was cut off.
var errLost = errors.New("connection lost")

// call is one request under way.
type call struct {
	from   string
	by     actor
	says   string
	writes bool
	run    func() error
	reply  chan error
	// late: who sent it has crashed.
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

// send returns when the request was answered, or its sender has crashed. What
// writes may arrive all the same.
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

// underWay are the requests that have not arrived, in an order that does not depend
// on which goroutine was faster.
func (w *wire) underWay() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.calls, func(a, b *call) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Clone(w.calls)
}

func (w *wire) take(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = slices.DeleteFunc(w.calls, func(other *call) bool { return other == c })
}

// arrive does what was asked, and answers.
func (w *wire) arrive(c *call) {
	w.take(c)
	c.reply <- c.run()
}

// unanswered does what was asked, and its sender hears of a failure.
func (w *wire) unanswered(c *call) {
	w.take(c)
	_ = c.run()
	c.reply <- errLost
}

// refuse does nothing of what was asked, and says why.
func (w *wire) refuse(c *call, why error) {
	w.take(c)
	c.reply <- why
}

// lose does nothing of what was asked.
func (w *wire) lose(c *call) {
	w.take(c)
	c.reply <- errLost
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
