package pvccache

import (
	"sync"
)

// liveRead is one read of a namespace and of all in it that may hold PVCs.
type liveRead struct {
	found *Namespace
	done  chan struct{}
}

// liveReads runs one read of a namespace at a time. Calls that come while one runs share
// the next: a read is shared only by calls that came before it began.
type liveReads struct {
	mu            sync.Mutex
	running, next map[string]*liveRead
}

func (l *liveReads) of(namespace string, read func() *Namespace) *Namespace {
	r, before, first := l.join(namespace)
	if !first {
		<-r.done
		return r.found
	}
	if before != nil {
		<-before.done
	}
	l.mu.Lock()
	delete(l.next, namespace)
	l.mu.Unlock()
	r.found = read()
	l.mu.Lock()
	if l.running[namespace] == r {
		delete(l.running, namespace)
	}
	l.mu.Unlock()
	close(r.done)
	return r.found
}

// join returns the next read of a namespace, the one to wait for before it, and whether
// the caller is the one to begin it.
func (l *liveReads) join(namespace string) (r, before *liveRead, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.next[namespace]; r != nil {
		return r, nil, false
	}
	if l.next == nil {
		l.next, l.running = map[string]*liveRead{}, map[string]*liveRead{}
	}
	r, before = &liveRead{done: make(chan struct{})}, l.running[namespace]
	l.next[namespace], l.running[namespace] = r, r
	return r, before, true
}
