package delay

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// Trouble is what befalls one request, answer or piece of a watch.
type Trouble struct {
	// Wait is how long it takes.
	Wait time.Duration
	// Refuse is the HTTP status that it ends with, or zero. A watch ends with any.
	Refuse int
}

// disturbance is what befalls all that passes at a stage.
type disturbance struct {
	stage Stage
	by    func(Request) Trouble
}

// Disturb has everything that passes at a stage, from now on, wait or fail as by says
// of it.
func (p *Proxy) Disturb(stage Stage, by func(Request) Trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disturbances = append(p.disturbances, disturbance{stage, by})
}

// Calm ends all disturbances.
func (p *Proxy) Calm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disturbances = nil
}

func (p *Proxy) disturbing(stage Stage) (by []func(Request) Trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.disturbances {
		if d.stage == stage {
			by = append(by, d.by)
		}
	}
	return by
}

// disturb returns when what passes has waited long enough.
func (p *Proxy) disturb(ctx context.Context, stage Stage, r Request) (refuse int, err error) {
	for _, by := range p.disturbing(stage) {
		t := by(r)
		if err := p.wait(ctx, t.Wait); err != nil || t.Refuse != 0 {
			return t.Refuse, err
		}
	}
	return 0, nil
}

func (p *Proxy) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.closed:
		return context.Canceled
	}
}

// errCut is what a watch ends with that was disturbed.
var errCut = errors.New("cut off by the test")

// Odds are how much befalls what passes.
type Odds struct {
	// Late is the share that waits, up to Most and mostly much less.
	Late float64
	Most time.Duration
	// Fail is the share that ends with one of Statuses.
	Fail     float64
	Statuses []int
}

// Erratic disturbs what match wants by chance. The same seed has the same befall the
// same requests, each time that they come again.
func Erratic(seed uint64, odds Odds, match func(Request) bool) func(Request) Trouble {
	var mu sync.Mutex
	times := map[string]uint64{}
	return func(r Request) (t Trouble) {
		if !match(r) {
			return t
		}
		key := r.String()
		mu.Lock()
		times[key]++
		n := times[key]
		mu.Unlock()
		random := rand.New(rand.NewPCG(seed, hash(key, n)))
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

func hash(key string, n uint64) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, key, " ", n)
	return h.Sum64()
}
