// Package pvchold makes the API server refuse the deletion of PVCs that are in use.
//
// It knows which events concern which PVCs, and carries out what is decided about one PVC, or
// one namespace, at a time. It refuses to know what holds a PVC and why, and takes part in no
// deletion: policies of the API server judge the annotations of a PVC, with or without it.
package pvchold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
	"lockstep.dev/lockstep/internal/turn"
)

const (
	// workers bound the PVCs and namespaces that are written at a time: the rest of the operator
	// shares the connection.
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

// Setup adds the controller of holds to the manager.
func Setup(mgr ctrl.Manager, o Options) error {
	p := &pass{Options: o, elected: mgr.Elected()}
	// Before the caches sync: the operator may release a PVC as soon as they have.
	if err := pvccache.Follow(context.Background(), o.Holds.Caches, &corev1.PersistentVolumeClaim{}, p.went); err != nil {
		return fmt.Errorf("follow deleted PVCs: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("hold").WithOptions(options()).WatchesRawSource(source.Func(p.follow)).Complete(p)
}

// follow adds PVCs to the queue, and namespaces, which have no name beside that of a namespace.
func (p *pass) follow(ctx context.Context, q queue) error {
	if err := p.Holds.AwaitSync(ctx); err != nil {
		return err
	}
	recount := func(namespace string) {
		q.AddAfter(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace}}, recountAfter)
	}
	return errors.Join(
		p.Holds.FollowPVCs(ctx, func(key types.NamespacedName) { q.AddAfter(ctrl.Request{NamespacedName: key}, gatherFor) }),
		pvccache.Follow(ctx, p.Holds.Caches, &corev1.PersistentVolumeClaim{}, func(before, after *corev1.PersistentVolumeClaim) {
			recount(cmp.Or(after, before).Namespace)
		}),
		pvccache.Follow(ctx, p.Holds.Caches, pvccache.NewNamespace(""), func(before, after *metav1.PartialObjectMetadata) {
			recount(cmp.Or(after, before).Name)
			p.ends(before, after)
		}),
	)
}

// Reconcile keeps the annotations of a PVC or a namespace true.
func (p *pass) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.Name == "" {
		return p.reconcileNamespace(ctx, req.Namespace)
	}
	return p.reconcilePVC(ctx, req.NamespacedName)
}

// options let a replica without the lease follow all events, so that it can take over at once.
func options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers, EnableWarmup: new(true), NewQueue: turn.NewQueue,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry),
	}
}

// ends reports that the release of a namespace is used: its deletion begins.
func (p *pass) ends(before, after *metav1.PartialObjectMetadata) {
	if before != nil && after != nil && before.DeletionTimestamp == nil && after.DeletionTimestamp != nil && p.leads() {
		p.Report.Ends(after)
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
