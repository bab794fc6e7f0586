package operator

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"lockstep.dev/lockstep/internal/controller/podgate"
	"lockstep.dev/lockstep/internal/controller/pvchold"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/lws"
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
	holds := pvccache.NewHolds(p.caches, p.claims, p.pods, workloads, reader, p.settings.Settings, p.settings.Grace)
	register(report.HoldMetrics())
	err = pvchold.Setup(p.mgr, pvchold.Options{
		Holds:      holds,
		Actor:      p.actor,
		Narrator:   report.NewHolds(report.New(p.mgr.GetEventRecorder(Protection))),
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
	config := rest.CopyConfig(p.mgr.GetConfig())
	clients, err := kinds.ClientsFor(config, p.mgr.GetHTTPClient())
	if err != nil {
		return nil, pvccache.Reader{}, err
	}
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfigAndClient(config, p.mgr.GetHTTPClient())
	if err != nil {
		return nil, pvccache.Reader{}, err
	}
	reader := pvccache.Reader{
		Live: p.mgr.GetAPIReader(), Kinds: p.settings.Kinds, Started: lws.LargestStarted,
		Served: func(ctx context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
			return kinds.Served(ctx, clients.Discovery, kind)
		},
	}
	workloads, err := pvccache.NewWorkloads(client, clients, p.settings.Kinds, lws.LargestStarted, report.WatchFailed)
	return workloads, reader, err
}

// setupStrict adds the controller that removes the scheduling gate from pods.
func (p *protection) setupStrict() error {
	gated, err := pvccache.NewGated(context.Background(), p.mgr.GetConfig(), cache.Options{
		HTTPClient: p.mgr.GetHTTPClient(), Scheme: p.mgr.GetScheme(), Mapper: p.mgr.GetRESTMapper(),
	})
	if err != nil {
		return err
	}
	return podgate.Setup(p.mgr, podgate.Options{
		Settings: p.settings.Settings, Gated: gated, Caches: p.caches, Claims: p.claims, Actor: p.actor, Narrator: p.narrator,
	})
}
