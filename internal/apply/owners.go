package apply

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// owners are those that were found alive in one pass. A nil one remembers nothing.
type owners struct {
	mu   sync.Mutex
	uids map[types.UID]bool
}

// Pass returns an Actor for one pass: it reads each owner live once, before the
// first write that needs it, however many do. It must not outlive the pass.
func (a *Actor) Pass() *Actor {
	pass := *a
	pass.found = &owners{uids: map[types.UID]bool{}}
	return &pass
}

func (o *owners) has(uid types.UID) bool {
	if o == nil || uid == "" {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.uids[uid]
}

func (o *owners) add(uid types.UID) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.uids[uid] = true
}
