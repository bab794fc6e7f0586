package pvcfinalizer

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/report"
)

const (
	volumeWorkers = 4
	// changedMeanwhile is how soon a volume is looked at that changed since the look,
	// unless an event comes first.
	changedMeanwhile = 50 * time.Millisecond
)

// Volumes sees to the finalizers of volumes where nothing built in does.
type Volumes struct {
	// Cached shows volumes as far as observe.VolumeCaches keeps them.
	Cached  client.Reader
	Actor   *apply.Actor
	Narrate *report.Protection
}

// Setup adds it to the manager.
func (v *Volumes) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("volume-protection").
		WithOptions(controller.Options{MaxConcurrentReconciles: volumeWorkers, EnableWarmup: new(true)}).
		Watches(&corev1.PersistentVolume{}, &handler.EnqueueRequestForObject{}).
		Complete(v)
}

// Reconcile looks at one volume.
func (v *Volumes) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	volume := &corev1.PersistentVolume{}
	if err := v.Cached.Get(ctx, req.NamespacedName, volume); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	a, ok := pvc.DecideVolume(volume)
	if !ok {
		return ctrl.Result{}, nil
	}
	_, err := v.Actor.Do(ctx, a)
	v.Narrate.Wrote(ctx, a, err)
	switch {
	case errors.Is(err, apply.ErrGone):
		return ctrl.Result{}, nil
	case errors.Is(err, apply.ErrStale):
		return ctrl.Result{RequeueAfter: changedMeanwhile}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("%s %s: %w", a.Verb(), a.Object, err)
	}
	return ctrl.Result{}, nil
}
