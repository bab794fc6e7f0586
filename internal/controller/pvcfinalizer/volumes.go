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

	"lockstep.dev/lockstep/internal/apply"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/report"
)

const (
	volumeWorkers = 4
	// volumeAgain is how soon a PersistentVolume that changed since the read is read again,
	// unless an event comes first.
	volumeAgain = 50 * time.Millisecond
)

// Volumes adds and removes the finalizer of PersistentVolumes where the built-in controller
// is off.
type Volumes struct {
	// Cached must have pvccache.VolumeCaches.
	Cached client.Reader
	Actor  *apply.Actor
	Report *report.Protection
}

// Setup adds it to the manager.
func (v *Volumes) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("volume-protection").
		For(&corev1.PersistentVolume{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: volumeWorkers, EnableWarmup: new(true)}).
		Complete(v)
}

// Reconcile judges one PersistentVolume.
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
	v.Report.Wrote(ctx, a, err)
	switch {
	case err == nil, errors.Is(err, apply.ErrGone):
		return ctrl.Result{}, nil
	case errors.Is(err, apply.ErrStale):
		return ctrl.Result{RequeueAfter: volumeAgain}, nil
	}
	return ctrl.Result{}, fmt.Errorf("%s %s: %w", a.About().Verb, a.Object, err)
}
