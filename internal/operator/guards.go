package operator

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"lockstep.dev/lockstep/internal/narrate"
	"lockstep.dev/lockstep/internal/observe"
)

// lookAtPoliciesEvery is how often it is looked whether the policies that refuse are there.
const lookAtPoliciesEvery = 30 * time.Second

// setupGuards has it told, by the replica that leads, when somebody deletes the policies.
func (p *protection) setupGuards() error {
	guards, tell := observe.NewGuards(p.mgr.GetAPIReader()), narrate.NewGuards(p.log)
	for _, collector := range tell.Metrics() {
		_ = metrics.Registry.Register(collector) // registered already by an earlier setup in this process
	}
	return p.mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		for {
			if missing, err := guards.Missing(ctx); ctx.Err() == nil {
				tell.Looked(missing, err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(lookAtPoliciesEvery):
			}
		}
	}))
}
