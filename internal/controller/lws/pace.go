package lws

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

const (
	// restPerGroup is how long a set is not read again after a read, for each of its groups. A
	// read costs some microseconds for each, and as many events come as a set has groups.
	restPerGroup = 500 * time.Microsecond
	// restComing is how many times as long it is while most groups of a set are incomplete: their
	// own reconciles create what they lack, and the set only counts them.
	restComing = 4
	// restAtMost bounds the pause of the largest sets.
	restAtMost = time.Second
)

// pace delays the next read of a set.
type pace struct {
	now func() time.Time

	mu   sync.Mutex
	next map[types.NamespacedName]time.Time
}

func newPace(now func() time.Time) *pace {
	return &pace{now: now, next: map[types.NamespacedName]time.Time{}}
}

// read records that a set was read, and how large it is, or drops one that was not.
func (p *pace) read(key types.NamespacedName, w lws.SetSnapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.Set == nil {
		delete(p.next, key)
		return
	}
	rest := time.Duration(len(w.Groups)+len(w.Vacant)) * restPerGroup
	if coming(w) {
		rest *= restComing
	}
	p.next[key] = p.now().Add(min(rest, restAtMost))
}

// in returns how soon a set is read: not before least, and not before its pause ends.
func (p *pace) in(key types.NamespacedName, least time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next, known := p.next[key]; known {
		return max(least, next.Sub(p.now()))
	}
	return least
}

// coming reports whether most groups of a set are incomplete.
func coming(w lws.SetSnapshot) bool {
	if workload.Size(w.Set) == 1 {
		return false
	}
	complete := 0
	for i := range w.Groups {
		if workers := w.Groups[i].Workers.Own(); workers != nil && !workload.LacksPods(workers) {
			complete++
		}
	}
	return 2*complete < int(workload.Replicas(w.Set))
}
