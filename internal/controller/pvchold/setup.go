package pvchold

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

// Name is that of the controller of claims.
const Name = "hold"

const (
	// workers bound how many claims are written at once: the rest of the operator
	// shares the connection.
	workers = 8
	// gather is how long events of a claim are gathered before it is looked at.
	gather = 50 * time.Millisecond
	// recount is how long changes of the claims of a namespace are gathered before
	// they are counted.
	recount = 500 * time.Millisecond
	// lookAgain is how soon a claim that has changed since the look is looked at again,
	// unless its event comes first.
	lookAgain = 100 * time.Millisecond
	// retrySoonest and retryAtMost bound the pause after an error: one that is over is
	// not to leave a claim unheld, or held, for long.
	retrySoonest = 5 * time.Millisecond
	retryAtMost  = 30 * time.Second
)

// Options are what the controllers of holds work with.
type Options struct {
	Holds    *pvccache.Holds
	Actor    *apply.Actor
	Narrator *report.Holds
	// ReleaseTTL is how long a release token lasts.
	ReleaseTTL time.Duration
	Now        func() time.Time
}

// Setup adds the controllers of holds to the manager.
func Setup(mgr ctrl.Manager, o Options) error {
	p := &pass{observe: o.Holds, act: o.Actor, narrate: o.Narrator, ttl: o.ReleaseTTL, now: o.Now}
	claims, namespaces := newKeys(o.Holds.AwaitSync, o.Holds.All), newKeys(o.Holds.AwaitSync, o.Holds.Namespaces)
	if err := o.Holds.Follow(context.Background(), p.followers(claims, namespaces, mgr.Elected())); err != nil {
		return fmt.Errorf("follow claims: %w", err)
	}
	if err := complete(mgr, Name, claims, &claimReconciler{p}); err != nil {
		return err
	}
	return complete(mgr, "held-claims", namespaces, &namespaceReconciler{p})
}

// followers are told what events concern. They are followed by replicas that stand by,
// too, of which none may tell what the one that leads tells.
func (p *pass) followers(claims, namespaces *keys, elected <-chan struct{}) pvccache.Followers {
	return pvccache.Followers{
		Claim: claims.in(gather), Namespace: namespaces.named(recount),
		Gone: leading(elected, p.went), Ends: leading(elected, p.narrate.Ends),
	}
}

// leading tells nothing before the replica leads.
func leading[T any](elected <-chan struct{}, tell func(T)) func(T) {
	return func(what T) {
		select {
		case <-elected:
			tell(what)
		default:
		}
	}
}

func complete(mgr ctrl.Manager, name string, keys *keys, reconciler ctrlReconciler) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		WithOptions(options()).
		WatchesRawSource(keys).
		Complete(reconciler)
	if err != nil {
		return fmt.Errorf("set up the %s controller: %w", name, err)
	}
	return nil
}

// options have a replica that stands by hear of everything, so that it can take over at
// once.
func options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers, EnableWarmup: new(true),
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](retrySoonest, retryAtMost),
	}
}
