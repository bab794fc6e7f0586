package interleave

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/controller/podgate"
)

// lookAgain is how soon a pod is looked at again that waits under its gate, at most.
const lookAgain = 20 * time.Millisecond

// gatedPods are what the controller of mode strict reads from memory.
type gatedPods struct {
	ctrlcache.Cache // what is not asked for
	pods            *informer[*corev1.Pod]
}

func (g gatedPods) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	found, ok := g.pods.get(key.Name)
	if !ok {
		return apierrors.NewNotFound(podResource, key.Name)
	}
	*into.(*corev1.Pod) = *found
	return nil
}

// lift has the controller of mode strict see to every pod that it hears of, one at a
// time.
func (o *ours) lift(ctx context.Context, r *podgate.Reconciler) {
	turns := make(chan string, 1000)
	heard := func(object any) { turns <- object.(*corev1.Pod).Name }
	_, _ = o.gates.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: heard, UpdateFunc: func(_, now any) { heard(now) }})
	go func() {
		for {
			select {
			case name := <-turns:
				again, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
				if (err != nil || again.RequeueAfter > 0) && ctx.Err() == nil {
					time.AfterFunc(lookAgain, func() { turns <- name })
				}
			case <-ctx.Done():
				return
			}
		}
	}()
}
