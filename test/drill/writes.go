package drill

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Writes are a client that creates a set as a dry run and changes another, ten times a second.
type Writes struct {
	cancel context.CancelFunc
	ended  chan struct{}

	rounds  atomic.Int64
	refused []string // read once it has ended
}

// NewWrites begins to change a set, which exists. More is done in each round.
func NewWrites(ctx context.Context, c client.Client, set *lwsv1.LeaderWorkerSet, more ...func(context.Context) error) *Writes {
	ctx, cancel := context.WithCancel(ctx)
	w := &Writes{cancel: cancel, ended: make(chan struct{})}
	probe, set := set.DeepCopy(), set.DeepCopy()
	probe.Name, probe.ResourceVersion, probe.UID = set.Name+"-probe", "", ""
	round := append([]func(context.Context) error{
		func(ctx context.Context) error { return c.Create(ctx, probe.DeepCopy(), client.DryRunAll) },
		func(ctx context.Context) error {
			return c.Patch(ctx, set, Merge(fmt.Sprintf(`{"metadata":{"annotations":{"at":%q}}}`, time.Now())))
		},
	}, more...)
	go w.run(ctx, round)
	return w
}

func (w *Writes) run(ctx context.Context, round []func(context.Context) error) {
	defer close(w.ended)
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		for _, do := range round {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				w.refused = append(w.refused, time.Now().Format(time.TimeOnly)+" "+err.Error())
			}
		}
		w.rounds.Add(1)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Rounds returns how many rounds were made.
func (w *Writes) Rounds() int { return int(w.rounds.Load()) }

// End ends the client, and fails the test if anything was refused.
func (w *Writes) End(t *testing.T) {
	t.Helper()
	w.cancel()
	<-w.ended
	t.Logf("%d rounds of writes", w.Rounds())
	if w.Rounds() < 10 || len(w.refused) > 0 {
		t.Errorf("%d rounds, %d writes were refused:\n%s", w.Rounds(), len(w.refused), strings.Join(w.refused[:min(10, len(w.refused))], "\n"))
	}
}
