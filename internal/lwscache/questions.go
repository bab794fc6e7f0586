package lwscache

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// questions are those put to the API server about objects that a cache lacks. A set
// and its group look at the same moment when a leader leaves, and both would ask for
// it: whoever comes second waits, and needs no answer of his own if the object is gone,
// for that it stays. Any other answer may be older than his look, and he asks himself.
type questions struct {
	mu   sync.Mutex
	open map[types.UID]chan struct{}
}

// ask returns at once if nobody asks for the object, and otherwise when he was
// answered or the look ends. Call what it returns when the answer is known.
func (q *questions) ask(ctx context.Context, uid types.UID) (answered func()) {
	other, done := q.begin(uid)
	if other != nil {
		select {
		case <-other:
		case <-ctx.Done():
		}
		return func() {}
	}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.open, uid)
		close(done)
	}
}

// begin returns what ends when somebody else's question about the object does, or
// else opens one.
func (q *questions) begin(uid types.UID) (other, own chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if other := q.open[uid]; other != nil {
		return other, nil
	}
	if q.open == nil {
		q.open = map[types.UID]chan struct{}{}
	}
	own = make(chan struct{})
	q.open[uid] = own
	return nil, own
}
