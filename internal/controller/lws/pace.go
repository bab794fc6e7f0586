package lws

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/workload"
)

const (
	// restPerGroup is how long a set is left alone after a look, for each of its
	// groups: a look costs some microseconds for each, and the events of a set that
	// comes or rolls are as many as its groups. Without a pause their product would be
	// paid; with it a set takes a small part of one processor, however large it is.
	restPerGroup = 500 * time.Microsecond
	// restComing is how many times as long it is while most groups of a set are still to
	// come. Whatever a group lacks, its own look sees to: the set does no more than count
	// them, and a look at groups that are not complete costs the most.
	restComing = 4
	// restAtMost bounds the pause of the largest sets.
	restAtMost = time.Second
)

// pace keeps sets from being looked at again at once. A nil one lets everything pass.
type pace struct {
	now func() time.Time

	mu   sync.Mutex
	next map[types.NamespacedName]time.Time
}

func newPace(now func() time.Time) *pace {
	return &pace{now: now, next: map[types.NamespacedName]time.Time{}}
}

// looked notes that a set was looked at, and how large it was found.
func (p *pace) looked(key types.NamespacedName, w lws.SetSnapshot) {
	if p == nil {
		return
	}
	rest := time.Duration(len(w.Groups)+len(w.Vacant)) * restPerGroup
	if coming(w) {
		rest *= restComing
	}
	rest = min(rest, restAtMost)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next[key] = p.now().Add(rest)
}

// forget drops what is known of a set that is not there.
func (p *pace) forget(key types.NamespacedName) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.next, key)
}

// in is how soon a set is looked at: not before least, and not before it has rested.
func (p *pace) in(key types.NamespacedName, least time.Duration) time.Duration {
	if p == nil {
		return least
	}
	p.mu.Lock()
	next, resting := p.next[key]
	p.mu.Unlock()
	if !resting {
		return least
	}
	return max(least, next.Sub(p.now()))
}

// coming tells whether most groups of a set are still to come.
func coming(w lws.SetSnapshot) bool {
	if w.Set == nil {
		return false
	}
	complete := 0
	for i := range w.Groups {
		if workers := w.Groups[i].Workers.Member(); workers != nil && !workload.LacksPods(workers) {
			complete++
		}
	}
	return workload.Size(w.Set) > 1 && 2*complete < int(workload.Replicas(w.Set))
}
