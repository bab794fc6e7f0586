package interleave

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"lockstep.dev/lockstep/internal/controller/podgate"
	"lockstep.dev/lockstep/internal/pvccache"
)

// readAgain is how soon a gated pod is read again, at most.
const readAgain = 20 * time.Millisecond

// lift reconciles every pod that the informer reports, one at a time.
func lift(ctx context.Context, r *podgate.Reconciler) {
	names := make(chan string, 1000)
	_ = r.Pods.Follow(func(_, after *pvccache.PodUses) {
		if after != nil {
			names <- after.Name
		}
	})
	go func() {
		for {
			select {
			case name := <-names:
				again, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
				if (err != nil || again.RequeueAfter > 0) && ctx.Err() == nil {
					time.AfterFunc(readAgain, func() { names <- name })
				}
			case <-ctx.Done():
				return
			}
		}
	}()
}
