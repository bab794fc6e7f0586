package pvcfinalizer

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const (
	// atOnce is how many claims of a namespace are looked at together, at most.
	atOnce = 1000
	// firstRetry and lastRetry bound the pause before a claim that failed is tried
	// again, which doubles.
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Minute
)

// state is where a claim in the backlog is.
type state int8

const (
	waiting state = iota + 1 // to be taken
	taken                    // by a worker
	again                    // by a worker, and something happened since
)

// backlog is the claims that have to be looked at. What is in it counts until a
// worker is done with it, and a claim that is added meanwhile is looked at again.
//
//	add ──► waiting ──take──► taken ──done──► gone
//	                            │ add            ▲
//	                            ▼                │
//	        waiting ◄──done── again   retry ─► later ─► waiting
//
// A namespace whose claims were taken is closed until its pods have been read for
// them: what comes meanwhile shares the next reading.
type backlog struct {
	clock clock.WithDelayedExecution
	limit workqueue.TypedRateLimiter[types.NamespacedName]

	mu     sync.Mutex
	states map[types.NamespacedName]state
	// shelves are the waiting claims of each namespace, in the order they came.
	shelves map[string][]string
	// ready are the namespaces with waiting claims that may be taken, in the order they
	// came.
	ready []string
	// closed are the namespaces that are gathering claims, or are looked at.
	closed map[string]bool
	// gather is how long claims of a namespace are waited for after the first.
	gather func(namespace string) time.Duration
	// later are claims that wait for their time.
	later map[types.NamespacedName]pause
	// more is closed and made anew when claims become ready.
	more chan struct{}
}

// pause is a claim's wait for its time.
type pause struct {
	end clock.Timer
	// owed: the claim was looked at, and something is still to be done about it.
	owed bool
}

func newBacklog(c clock.WithDelayedExecution, gather func(namespace string) time.Duration) *backlog {
	return &backlog{
		clock:   c,
		gather:  gather,
		closed:  map[string]bool{},
		limit:   workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
		states:  map[types.NamespacedName]state{},
		shelves: map[string][]string{},
		later:   map[types.NamespacedName]pause{},
		more:    make(chan struct{}),
	}
}

// add has a claim looked at as soon as possible.
func (b *backlog) add(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(key, b.gather)
}

// put has a claim wait, for as long as its namespace gathers others if it is the first.
func (b *backlog) put(key types.NamespacedName, gather func(namespace string) time.Duration) {
	if p, pauses := b.later[key]; pauses {
		p.end.Stop()
		delete(b.later, key)
	}
	switch b.states[key] {
	case waiting, again:
		return
	case taken:
		b.states[key] = again
		return
	}
	b.states[key] = waiting
	b.shelves[key.Namespace] = append(b.shelves[key.Namespace], key.Name)
	if len(b.shelves[key.Namespace]) == 1 && !b.closed[key.Namespace] {
		b.expect(key.Namespace, gather(key.Namespace))
	}
}

// atNoPause gathers nothing.
func atNoPause(string) time.Duration { return 0 }

// expect opens a namespace to which a first claim came, once others had time to come.
func (b *backlog) expect(namespace string, within time.Duration) {
	if within == 0 {
		b.open(namespace)
		return
	}
	b.closed[namespace] = true
	b.clock.AfterFunc(within, func() { b.looked(namespace) })
}

// looked has the claims of a namespace taken again that came while it was closed.
func (b *backlog) looked(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.closed, namespace)
	if len(b.shelves[namespace]) > 0 {
		b.open(namespace)
	}
}

func (b *backlog) open(namespace string) {
	b.ready = append(b.ready, namespace)
	close(b.more)
	b.more = make(chan struct{})
}

// retry has a claim looked at again, later each time. It counts until then.
func (b *backlog) retry(key types.NamespacedName) { b.rest(key, b.limit.When(key), true) }

// remind has a claim looked at after a while, should nothing happen before. It
// does not count: nothing is to be done about it now.
func (b *backlog) remind(key types.NamespacedName, in time.Duration) { b.rest(key, in, false) }

func (b *backlog) rest(key types.NamespacedName, in time.Duration, owed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, pauses := b.later[key]; pauses || b.states[key] == waiting || b.states[key] == again {
		return
	}
	b.later[key] = pause{owed: owed, end: b.clock.AfterFunc(in, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if _, pauses := b.later[key]; pauses { // or somebody was faster
			delete(b.later, key)
			b.put(key, atNoPause) // it has waited
		}
	})}
}

// succeeded ends the memory of how often a claim failed.
func (b *backlog) succeeded(key types.NamespacedName) { b.limit.Forget(key) }

// take waits for claims of one namespace and returns them, or none when ctx ends. The
// namespace is closed until it was looked at.
func (b *backlog) take(ctx context.Context) []types.NamespacedName {
	for {
		keys, more := b.taken()
		if len(keys) > 0 {
			return keys
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
	}
}

func (b *backlog) taken() (keys []types.NamespacedName, more <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ready) == 0 {
		return nil, b.more
	}
	namespace := b.ready[0]
	b.ready = b.ready[1:]
	b.closed[namespace] = true
	names := b.shelves[namespace]
	n := min(len(names), atOnce)
	for _, name := range names[:n] {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		b.states[key] = taken
		keys = append(keys, key)
	}
	if n == len(names) {
		delete(b.shelves, namespace)
		return keys, nil
	}
	b.shelves[namespace] = names[n:]
	return keys, nil
}

// done ends the work on a claim.
func (b *backlog) done(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.states[key]
	delete(b.states, key)
	if before == again {
		b.put(key, b.gather)
	}
}

// depth is how many claims wait, for a worker or for their time, or are being
// looked at.
func (b *backlog) depth() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.states)
	for key, p := range b.later {
		if p.owed && b.states[key] == 0 {
			n++
		}
	}
	return n
}
