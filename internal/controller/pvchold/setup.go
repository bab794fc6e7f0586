// Package pvchold makes the API server refuse the deletion of PVCs that are in use.
//
// It knows which events concern which PVCs, and carries out what is decided about one PVC, or
// one namespace, at a time. It refuses to know what holds a PVC and why, and takes part in no
// deletion: policies of the API server judge the annotations of a PVC, with or without it.
package pvchold

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

// Name is the name of the controller of PVCs.
const Name = "hold"

const (
	// workers bound the PVCs that are written at a time: the rest of the operator shares the
	// connection.
	workers = 8
	// gatherFor is how long events of a PVC are gathered.
	gatherFor = 50 * time.Millisecond
	// recountAfter is how long changes of the PVCs of a namespace are gathered.
	recountAfter = 500 * time.Millisecond
	// lookAgain is how soon a PVC that changed since the read is read again, unless an event
	// comes first.
	lookAgain = 100 * time.Millisecond
	// firstRetry and lastRetry bound the pause after an error: one that is over must not leave
	// a PVC unheld, or held, for long.
	firstRetry = 5 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Options are what the controllers of holds work with.
type Options struct {
	Holds  *pvccache.Holds
	Actor  *apply.Actor
	Report *report.Holds
	// ReleaseTTL is how long a release token lasts.
	ReleaseTTL time.Duration
	Now        func() time.Time
}

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// Setup adds the controllers of holds to the manager.
func Setup(mgr ctrl.Manager, o Options) error {
	p := &pass{Options: o, elected: mgr.Elected()}
	// Before the caches sync: the operator may release a PVC as soon as they have.
	if err := o.Holds.FollowDeleted(context.Background(), p.went); err != nil {
		return fmt.Errorf("follow deleted PVCs: %w", err)
	}
	err := p.setup(mgr, Name, p.reconcilePVC, func(ctx context.Context, q queue) error {
		return o.Holds.FollowClaims(ctx, func(key types.NamespacedName) { q.AddAfter(ctrl.Request{NamespacedName: key}, gatherFor) })
	})
	if err != nil {
		return err
	}
	return p.setup(mgr, "held-claims", p.reconcileNamespace, func(ctx context.Context, q queue) error {
		concerned := func(name string) {
			q.AddAfter(ctrl.Request{NamespacedName: types.NamespacedName{Name: name}}, recountAfter)
		}
		return o.Holds.FollowNamespaces(ctx, concerned, p.ends)
	})
}

func (p *pass) setup(mgr ctrl.Manager, name string, reconciler reconcile.Func, follow func(context.Context, queue) error) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named(name).
		WithOptions(options()).
		WatchesRawSource(source.Func(func(ctx context.Context, q queue) error {
			if err := p.Holds.AwaitSync(ctx); err != nil {
				return err
			}
			return follow(ctx, q)
		})).
		Complete(reconciler)
	if err != nil {
		return fmt.Errorf("set up the %s controller: %w", name, err)
	}
	return nil
}

// options let a replica without the lease follow all events, so that it can take over at once.
func options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers, EnableWarmup: new(true),
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry),
	}
}

// ends reports that the release of a namespace was used, if this replica leads.
func (p *pass) ends(namespace *metav1.PartialObjectMetadata) {
	if p.leads() {
		p.Report.Ends(namespace)
	}
}

// leads reports whether this replica has the lease. The others follow events too, and must not
// report them again.
func (p *pass) leads() bool {
	select {
	case <-p.elected:
		return true
	default:
		return false
	}
}
