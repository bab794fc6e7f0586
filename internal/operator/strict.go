package operator

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/cache"

	"lockstep.dev/lockstep/internal/controller/podgate"
	"lockstep.dev/lockstep/internal/pvccache"
)

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
