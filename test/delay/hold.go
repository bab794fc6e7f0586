package delay

import (
	"context"
	"fmt"
	"sync"
)

// Stage is where something is held.
type Stage int8

const (
	// Requests are held before the API server sees them.
	Requests Stage = iota
	// Answers are held once the API server has done what was asked.
	Answers
	// Streams are watches: each piece is held, of those that are open already as
	// well.
	Streams
)

// Hold holds what it matches until it is released.
type Hold struct {
	stage Stage
	match func(Request) bool

	reached chan Request // the first that was held
	once    sync.Once
	over    chan struct{}
	refuse  int // an HTTP status, for what was held
	deny    int // an HTTP status, for what comes: nothing is held
}

// Hold holds, from now on, everything at a stage that match wants.
func (p *Proxy) Hold(stage Stage, match func(Request) bool) *Hold {
	h := &Hold{stage: stage, match: match, reached: make(chan Request, 1), over: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h
}

// Deny answers, from now on, every request that match wants with an HTTP status, until
// it is released.
func (p *Proxy) Deny(status int, match func(Request) bool) *Hold {
	h := &Hold{stage: Requests, match: match, reached: make(chan Request, 1), over: make(chan struct{}), deny: status}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h
}

// Reached waits until something is held, and returns the first.
func (h *Hold) Reached(ctx context.Context) (Request, error) {
	select {
	case r := <-h.reached:
		h.reached <- r // for whoever asks again
		return r, nil
	case <-ctx.Done():
		return Request{}, fmt.Errorf("nothing came to be held: %w", ctx.Err())
	}
}

// Release lets go what is held, and holds nothing more.
func (h *Hold) Release() { h.once.Do(func() { close(h.over) }) }

// Refuse answers what is held with an HTTP status instead, and holds nothing more.
// At the stage of answers that is a write that was done, and its writer never knew.
func (h *Hold) Refuse(status int) {
	h.once.Do(func() {
		h.refuse = status
		close(h.over)
	})
}

// pass returns when nothing holds a request any more: with a status if it is to be
// refused, and with an error if its asker has gone.
func (p *Proxy) pass(ctx context.Context, stage Stage, r Request) (refuse int, err error) {
	for _, h := range p.holding(stage, r) {
		select {
		case h.reached <- r:
		default:
		}
		if h.deny != 0 {
			return h.deny, nil
		}
		select {
		case <-h.over:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-p.closed:
			return 0, context.Canceled
		}
		if h.refuse != 0 {
			return h.refuse, nil
		}
	}
	return p.disturb(ctx, stage, r)
}

func (p *Proxy) holding(stage Stage, r Request) []*Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	var active []*Hold
	for _, h := range p.holds {
		select {
		case <-h.over:
		default:
			if h.stage == stage && h.match(r) {
				active = append(active, h)
			}
		}
	}
	return active
}
