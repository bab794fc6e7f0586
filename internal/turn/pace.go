package turn

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// Pace bounds how often something is done in each namespace. It is safe for concurrent use.
type Pace struct {
	every rate.Limit
	burst int

	mu sync.Mutex
	// limiters has a *rate.Limiter for each namespace.
	limiters *lru.Cache
	// slots has when an object that waits is served, by its UID.
	slots *lru.Cache
}

// NewPace returns a pace of so many a second in each namespace, and of a burst after a rest.
func NewPace(perSecond, burst int) *Pace {
	const namespaces, waiting = 10_000, 100_000 // of which the pace remembers what it granted
	return &Pace{every: rate.Limit(perSecond), burst: burst, limiters: lru.New(namespaces), slots: lru.New(waiting)}
}

// In returns how long an object waits for its slot. Once it is zero, the slot is used.
func (p *Pace) In(namespace string, object types.UID, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot, waits := p.slots.Get(object)
	if !waits {
		limiter, known := p.limiters.Get(namespace)
		if !known {
			limiter = rate.NewLimiter(p.every, p.burst)
			p.limiters.Add(namespace, limiter)
		}
		slot = now.Add(limiter.(*rate.Limiter).ReserveN(now, 1).DelayFrom(now))
		p.slots.Add(object, slot)
	}
	if in := slot.(time.Time).Sub(now); in > 0 {
		return in
	}
	p.slots.Remove(object)
	return 0
}
