package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"lockstep.dev/lockstep/internal/webhook/certs"
)

// glance bounds one check of a probe.
const glance = time.Second

// addChecks answers the probes. A process that answers is alive. It is ready when its
// caches are synced, with the lease or without, and the API server would accept its webhook
// server.
func (o *Options) addChecks(mgr ctrl.Manager, cached cache.Options, keeper *certs.Keeper) error {
	if err := beginCaches(mgr, cached); err != nil {
		return err
	}
	checks := map[string]healthz.Checker{"caches": synced(mgr.GetCache())}
	if keeper != nil {
		checks["webhooks"] = mgr.GetWebhookServer().StartedChecker()
		checks["certificate"] = func(*http.Request) error { return keeper.Trusted() }
	}
	for name, check := range checks {
		if err := mgr.AddReadyzCheck(name, check); err != nil {
			return err
		}
	}
	return mgr.AddHealthzCheck("ping", healthz.Ping)
}

// beginCaches asks for every cache now, so that the check of caches covers all of them. A
// controller that waits for the lease would ask later.
func beginCaches(mgr ctrl.Manager, cached cache.Options) error {
	for object := range cached.ByObject {
		if _, err := mgr.GetCache().GetInformer(context.Background(), object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return nil
}

func synced(caches cache.Cache) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), glance)
		defer cancel()
		if !caches.WaitForCacheSync(ctx) {
			return errors.New("the caches are not synced yet")
		}
		return nil
	}
}
