package pvccache

import (
	"sync"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// shareFor is how long a live reading of a namespace is shared. Many claims are judged
// together, and what happens in the namespace meanwhile comes a moment too late.
const shareFor = 250 * time.Millisecond

// keptFor is how long one is kept that nobody shares any more: of a large namespace it is
// megabytes.
const keptFor = time.Second

// readings are the last live ones of something that there is one of in each namespace.
type readings[T any] struct {
	mu  sync.Mutex
	all *lru.Cache
}

// newReadings keeps those of so many namespaces.
func newReadings[T any](kept int) *readings[T] { return &readings[T]{all: lru.New(kept)} }

// in is the last reading of a namespace, which may be yet to come.
func (r *readings[T]) in(namespace string) *reading[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.all.Get(namespace); ok {
		return last.(*reading[T])
	}
	first := &reading[T]{}
	r.all.Add(namespace, first)
	return first
}

// reading is one live reading, and the claims that were seen in the namespace before it
// began: it tells of no other, which may belong to the life after, or be wanted by what
// was made since.
type reading[T any] struct {
	mu    sync.Mutex
	value T
	begun time.Time
	seen  map[types.UID]bool
	// ends is when it is let go of.
	ends *time.Timer
}

// inquiry asks for a reading that tells of claims.
type inquiry[T any] struct {
	// claims were all seen before now.
	claims []types.UID
	now    time.Time
	// fits tells whether what was read a moment ago will do, or is nil if it always does.
	fits func(T) bool
	// seen returns other claims of the namespace: a reading that is begun tells of them as well.
	seen func() ([]types.UID, error)
	read func() (T, error)
}

// of returns what a reading told. What is shared must not be changed.
func (r *reading[T]) of(ask inquiry[T]) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tells(ask.claims, ask.now) && (ask.fits == nil || ask.fits(r.value)) {
		return r.value, nil
	}
	var none T
	others, err := ask.seen()
	if err != nil {
		return none, err
	}
	value, err := ask.read()
	if err != nil {
		return none, err
	}
	r.value, r.begun, r.seen = value, ask.now, map[types.UID]bool{}
	for _, uid := range others {
		r.seen[uid] = true
	}
	for _, uid := range ask.claims {
		r.seen[uid] = true
	}
	r.keep()
	return value, nil
}

// keep has what was read be let go of in time. That of the reading before may come late,
// and cost another one. One that another namespace took the place of is not kept for that.
func (r *reading[T]) keep() {
	if r.ends != nil {
		r.ends.Stop()
	}
	kept := weak.Make(r)
	r.ends = time.AfterFunc(keptFor, func() {
		if r := kept.Value(); r != nil {
			r.forget()
		}
	})
}

func (r *reading[T]) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var none T
	r.value, r.seen = none, nil
}

func (r *reading[T]) tells(claims []types.UID, now time.Time) bool {
	if r.seen == nil || now.Sub(r.begun) >= shareFor {
		return false
	}
	for _, uid := range claims {
		if !r.seen[uid] {
			return false
		}
	}
	return true
}
