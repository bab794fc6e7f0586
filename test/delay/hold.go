package delay

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Stage is the place at which the proxy holds something.
type Stage int8

const (
	// Requests are held before the API server sees them.
	Requests Stage = iota
	// Answers are held after the API server has carried out the request.
	Answers
	// Streams are watches: each piece is held, also of watches that are already open.
	Streams
)

// rule applies to every request, answer or piece of a watch at a stage.
type rule struct {
	stage Stage
	// pass waits, and returns a status to refuse the request with, or zero.
	pass func(context.Context, Request) (refuse int, err error)
}

func (p *Proxy) add(r *rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
}

func (p *Proxy) remove(r *rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = slices.DeleteFunc(slices.Clone(p.rules), func(other *rule) bool { return other == r })
}

// pass returns when no rule holds a request any more. It returns a status to refuse the request
// with, or zero, and an error if the client is gone.
func (p *Proxy) pass(ctx context.Context, stage Stage, r Request) (int, error) {
	p.mu.Lock()
	rules := p.rules
	p.mu.Unlock()
	for _, rule := range rules {
		if rule.stage != stage {
			continue
		}
		if refuse, err := rule.pass(ctx, r); refuse != 0 || err != nil {
			return refuse, err
		}
	}
	return 0, nil
}

// wait waits for a value from a channel.
func wait[T any](ctx context.Context, p *Proxy, until <-chan T) error {
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.closed:
		return context.Canceled
	}
}

// Hold holds everything that it matches until Release.
type Hold struct {
	proxy   *Proxy
	rule    *rule
	reached chan Request // the first that was held
	once    sync.Once
	over    chan struct{}
}

// Hold holds everything at a stage that matches, from now on.
func (p *Proxy) Hold(stage Stage, match func(Request) bool) *Hold {
	h := &Hold{proxy: p, reached: make(chan Request, 1), over: make(chan struct{})}
	h.rule = &rule{stage: stage, pass: func(ctx context.Context, r Request) (int, error) {
		if !match(r) {
			return 0, nil
		}
		select {
		case h.reached <- r:
		default:
		}
		return 0, wait(ctx, p, h.over)
	}}
	p.add(h.rule)
	return h
}

// Reached waits until something is held, and returns the first.
func (h *Hold) Reached(ctx context.Context) (Request, error) {
	select {
	case r := <-h.reached:
		h.reached <- r // for the next call
		return r, nil
	case <-ctx.Done():
		return Request{}, fmt.Errorf("no request was held: %w", ctx.Err())
	}
}

// Release releases everything that is held, and holds nothing more.
func (h *Hold) Release() {
	h.once.Do(func() {
		h.proxy.remove(h.rule)
		close(h.over)
	})
}

// Trouble is the delay and the failure of one request, answer or piece of a watch.
type Trouble struct {
	// Wait is the delay.
	Wait time.Duration
	// Refuse is the HTTP status of the failure, or zero. Any status ends a watch.
	Refuse int
}

// Disturb delays or fails everything at a stage, from now on.
func (p *Proxy) Disturb(stage Stage, by func(Request) Trouble) {
	p.add(&rule{stage: stage, pass: func(ctx context.Context, r Request) (int, error) {
		t := by(r)
		if t.Wait > 0 {
			if err := wait(ctx, p, time.After(t.Wait)); err != nil {
				return 0, err
			}
		}
		return t.Refuse, nil
	}})
}

// Odds are the probabilities of trouble.
type Odds struct {
	// Late is the share that waits, for at most Most and usually much less.
	Late float64
	Most time.Duration
	// Fail is the share that fails with one of Statuses.
	Fail     float64
	Statuses []int
}

// Erratic disturbs matching requests at random. With the same seed, the same request gets the
// same trouble at each repetition.
func Erratic(seed uint64, odds Odds, match func(Request) bool) func(Request) Trouble {
	var mu sync.Mutex
	times := map[string]uint64{}
	return func(r Request) (t Trouble) {
		if !match(r) {
			return t
		}
		mu.Lock()
		times[r.String()]++
		hash := fnv.New64a()
		fmt.Fprint(hash, r, " ", times[r.String()])
		mu.Unlock()
		random := rand.New(rand.NewPCG(seed, hash.Sum64()))
		if random.Float64() < odds.Late {
			share := random.Float64()
			t.Wait = time.Duration(share * share * float64(odds.Most))
		}
		if random.Float64() < odds.Fail {
			t.Refuse = odds.Statuses[random.IntN(len(odds.Statuses))]
		}
		return t
	}
}
