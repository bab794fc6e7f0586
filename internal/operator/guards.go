package operator

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

const (
	// policyInterval is the time between two checks that the policies exist.
	policyInterval = 30 * time.Second
	// kindInterval is the time between two checks of configured kinds. They read memory
	// alone.
	kindInterval = 10 * time.Second
)

// setupGuards makes the replica with the lease report policies that were deleted.
func (p *protection) setupGuards() error {
	guards, reported := pvccache.NewPolicies(p.mgr.GetAPIReader(), p.settings.Alone, p.settings.InitialHold), report.NewPolicies(p.log)
	register(reported.Metrics())
	return p.mgr.Add(every(policyInterval, func(ctx context.Context) {
		if missing, err := guards.Missing(ctx); ctx.Err() == nil {
			reported.Read(missing, err)
		}
	}))
}

// setupKinds makes the replica with the lease report configured kinds that cannot be read.
func (p *protection) setupKinds(workloads *pvccache.Workloads) error {
	reported := report.NewKinds(p.log)
	register(reported.Metrics())
	return p.mgr.Add(every(kindInterval, func(context.Context) { reported.Read(workloads.Described()) }))
}

// every runs a check now, and again after each interval, on the replica with the lease.
func every(interval time.Duration, check func(context.Context)) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		wait.UntilWithContext(ctx, check, interval)
		return nil
	})
}
