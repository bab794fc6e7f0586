package operator

import (
	"context"
	"fmt"
	"time"

	"lockstep.dev/lockstep/internal/controller/podgate"
	"lockstep.dev/lockstep/internal/controller/pvchold"
	"lockstep.dev/lockstep/internal/lws/restart"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

// setupHolds adds the controllers that hold PVCs in use: a policy refuses to delete these.
func (p *protection) setupHolds() error {
	workloads, reader, err := p.workloads()
	if err != nil {
		return fmt.Errorf("watch workloads: %w", err)
	}
	if err := pvccache.IndexHolds(context.Background(), p.caches); err != nil {
		return err
	}
	register(report.HoldMetrics())
	err = pvchold.Setup(p.mgr, pvchold.Options{
		Holds: &pvccache.Holds{
			Caches: p.caches, Pods: p.pods, Workloads: workloads, Reader: reader, Settings: p.settings.Settings, Grace: p.settings.Grace,
		},
		Actor:      p.actor,
		Report:     report.NewHolds(report.New(p.mgr.GetEventRecorder(Protection))),
		ReleaseTTL: p.settings.ReleaseTTL,
		Now:        time.Now,
	})
	if err != nil {
		return err
	}
	if err := p.setupKinds(workloads); err != nil {
		return err
	}
	return p.mgr.Add(everywhere(workloads.Run))
}

// workloads returns the watches of workloads, and a reader of live ones.
func (p *protection) workloads() (*pvccache.Workloads, pvccache.Reader, error) {
	reader := pvccache.Reader{
		Live: p.mgr.GetAPIReader(), Kinds: p.settings.Kinds, Started: restart.LargestStarted,
		Served: p.starter.Served,
	}
	workloads, err := pvccache.NewWorkloads(p.client, p.starter, p.settings.Kinds, restart.LargestStarted, report.WatchFailed)
	return workloads, reader, err
}

// setupStrict adds the controller that removes the scheduling gate from pods.
func (p *protection) setupStrict() error {
	return (&podgate.Reconciler{
		Settings: p.settings.Settings, Pods: p.pods, Caches: p.caches, Live: p.mgr.GetAPIReader(), Actor: p.actor, Report: p.report,
	}).Setup(p.mgr)
}
