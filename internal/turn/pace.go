package turn

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// Pace bounds how often something is done in each namespace, the oldest first. It is safe for concurrent use.
type Pace struct {
	perSecond, burst int
	now              func() time.Time

	mu sync.Mutex
	// lines has a *line for each namespace.
	lines *lru.Cache
}

// line has the names of the objects of a namespace that wait, the oldest first.
type line struct {
	*rate.Limiter
	waiting []string
}

// NewPace returns a pace of so many a second in each namespace, and of a burst after a rest.
func NewPace(perSecond, burst int, now func() time.Time) *Pace {
	return &Pace{perSecond: perSecond, burst: burst, now: now, lines: lru.New(10_000)}
}

// In returns how long an object waits, and zero once it is served. One that waits must ask again then, or leave.
func (p *Pace) In(object types.NamespacedName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, known := p.lines.Get(object.Namespace)
	if !known {
		found = &line{Limiter: rate.NewLimiter(rate.Limit(p.perSecond), p.burst)}
		p.lines.Add(object.Namespace, found)
	}
	l, now := found.(*line), p.now()
	i := slices.Index(l.waiting, object.Name)
	if i < 0 {
		i, l.waiting = len(l.waiting), append(l.waiting, object.Name)
	}
	if lacks := float64(i+1) - l.TokensAt(now); lacks > 0 {
		return time.Duration(lacks / float64(p.perSecond) * float64(time.Second))
	}
	l.AllowN(now, 1)
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return 0
}

// Leave takes an object out of the line.
func (p *Pace) Leave(object types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found, known := p.lines.Get(object.Namespace); known {
		l := found.(*line)
		l.waiting = slices.DeleteFunc(l.waiting, func(name string) bool { return name == object.Name })
	}
}
