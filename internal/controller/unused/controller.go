package unused

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvccache"
	"lockstep.dev/lockstep/internal/report"
)

const (
	// workers is how many claims are written at a time. Few: claims that are to go share
	// the connection, and do not wait for this.
	workers = 4
	// settle is how long a claim is left alone before it may say that it is unused. The
	// time that it says is then later than the true one, and never earlier.
	settle = 5 * time.Second
	// lookAgain is how soon a claim is looked at that changed since the look.
	lookAgain = 100 * time.Millisecond
)

// Options are what the controller works with.
type Options struct {
	Settings pvc.Settings
	// Caches are those of observe.ProtectionCaches, which somebody else starts.
	Caches   cache.Cache
	Claims   *pvccache.Claims
	Pods     *pvccache.Pods
	Actor    *apply.Actor
	Narrator *report.Protection
	Now      func() time.Time
}

// Reconciler has one claim say whether it is unused.
type Reconciler struct {
	settings pvc.Settings
	claims   *pvccache.Claims
	pods     *pvccache.Pods
	act      *apply.Actor
	narrate  *report.Protection
	now      func() time.Time
}

// New returns a Reconciler that is called by somebody else.
func New(o Options) *Reconciler {
	return &Reconciler{settings: o.Settings, claims: o.Claims, pods: o.Pods, act: o.Actor, narrate: o.Narrator, now: o.Now}
}

// Setup adds the controller to a manager.
func Setup(mgr ctrl.Manager, o Options) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("unused-claims").
		WatchesRawSource(source.Kind(o.Caches, &corev1.PersistentVolumeClaim{}, claimEvents())).
		WatchesRawSource(&podEvents{o.Pods, o.Claims}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(New(o))
	if err != nil {
		return fmt.Errorf("set up the controller of unused claims: %w", err)
	}
	return nil
}

// Reconcile looks at one claim.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	view, err := r.look(ctx, req)
	if err != nil || view.Claim == nil {
		return ctrl.Result{}, err
	}
	verdict := pvc.DecideUnused(view, r.now())
	switch {
	case verdict.Awaits:
		return ctrl.Result{RequeueAfter: settle}, nil
	case verdict.Write == nil:
		return ctrl.Result{}, nil
	}
	_, err = r.act.Do(ctx, *verdict.Write)
	r.narrate.Wrote(ctx, *verdict.Write, err)
	switch {
	case errors.Is(err, apply.ErrGone):
		return ctrl.Result{}, nil
	case errors.Is(err, apply.ErrStale):
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("%s %s: %w", verdict.Write.Verb(), verdict.Write.Target(), err)
	}
	return ctrl.Result{}, nil
}

// look is a claim with its pods, as the caches show them.
func (r *Reconciler) look(ctx context.Context, req ctrl.Request) (pvc.View, error) {
	claim, err := r.claims.Get(ctx, req.NamespacedName)
	if err != nil || claim == nil {
		return pvc.View{}, err
	}
	namespace, err := r.claims.Namespace(ctx, claim.Namespace)
	if err != nil {
		return pvc.View{}, err
	}
	return pvc.View{
		Claim: claim, Pods: r.pods.Index(claim.Namespace, claim.Name),
		Mode: r.settings.ModeOf(claim, namespace.Labels), Settings: r.settings,
	}, nil
}
