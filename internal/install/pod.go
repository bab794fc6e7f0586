package install

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// freePods lets the pods of groups go that exhausted maxGroupRestarts: no operator is left to lift
// their finalizer. The StatefulSets of such groups create them again.
func (r *removal) freePods(ctx context.Context) error {
	freed := 0
	err := r.await(ctx, func(ctx context.Context) (missing string, err error) {
		err = r.each(ctx, &corev1.PodList{}, func(o client.Object) error {
			next := o.DeepCopyObject().(client.Object)
			if !controllerutil.RemoveFinalizer(next, lwsv1.GroupRestartBudgetFinalizer) {
				return nil
			}
			switch err := r.patch(ctx, o, next); {
			case err == nil:
				freed++
			case isPassing(err):
				missing = fmt.Sprintf("%s is kept by finalizer %s (%v)", named(o), lwsv1.GroupRestartBudgetFinalizer, err)
			default:
				return err
			}
			return nil
		}, client.HasLabels{lwsv1.SetNameLabelKey})
		return missing, err
	})
	if err != nil {
		return fmt.Errorf("let pods go that were kept as evidence: %w", err)
	}
	if r.stripped += freed; freed > 0 {
		r.say("finalizer removed from %d pods of stopped groups", freed)
	}
	return nil
}
