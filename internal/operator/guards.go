package operator

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

// lookAtPoliciesEvery is how often it is looked whether the policies are there.
const lookAtPoliciesEvery = 30 * time.Second

// setupGuards has it told, by the replica that leads, when somebody deletes the policies.
func (p *protection) setupGuards() error {
	guards, tell := pvccache.NewGuards(p.mgr.GetAPIReader(), p.settings.Alone, p.settings.InitialHold), report.NewGuards(p.log)
	for _, collector := range tell.Metrics() {
		_ = metrics.Registry.Register(collector) // registered already by an earlier setup in this process
	}
	return p.mgr.Add(every(lookAtPoliciesEvery, func(ctx context.Context) {
		if missing, err := guards.Missing(ctx); ctx.Err() == nil {
			tell.Looked(missing, err)
		}
	}))
}

// lookAtKindsEvery is how often it is looked what came of the kinds of the configuration.
// It reads memory alone.
const lookAtKindsEvery = 10 * time.Second

// setupKinds has it told, by the replica that leads, which kinds of the configuration
// hold less than they promise.
func (p *protection) setupKinds(desired *pvccache.Desired) error {
	tell := report.NewKinds(p.log)
	for _, collector := range tell.Metrics() {
		_ = metrics.Registry.Register(collector) // registered already by an earlier setup in this process
	}
	return p.mgr.Add(every(lookAtKindsEvery, func(context.Context) { tell.Looked(desired.Described()) }))
}

// every looks at something now, and again after each pause, where the lease is.
func every(pause time.Duration, look func(context.Context)) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		for {
			look(ctx)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pause):
			}
		}
	})
}
