package unused

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"lockstep.dev/lockstep/internal/pvccache"
)

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// claimEvents has claims looked at that come, and of which something changes that
// the condition depends on, or the condition itself.
func claimEvents() handler.TypedEventHandler[*corev1.PersistentVolumeClaim, ctrl.Request] {
	later := func(claim *corev1.PersistentVolumeClaim, q queue) {
		if claim.DeletionTimestamp == nil {
			q.AddAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(claim)}, settle)
		}
	}
	return handler.TypedFuncs[*corev1.PersistentVolumeClaim, ctrl.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.PersistentVolumeClaim], q queue) {
			later(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.PersistentVolumeClaim], q queue) {
			if concerns(e.ObjectOld, e.ObjectNew) {
				later(e.ObjectNew, q)
			}
		},
	}
}

func concerns(was, is *corev1.PersistentVolumeClaim) bool {
	return was.UID != is.UID || was.Status.Phase != is.Status.Phase || !slices.Equal(was.Finalizers, is.Finalizers) ||
		!slices.Equal(was.Status.Conditions, is.Status.Conditions)
}

// podEvents has the claims of pods looked at. Nothing is before all pods were seen
// once: one that is not there yet is not a pod that is gone.
type podEvents struct {
	pods   *pvccache.Pods
	claims *pvccache.Claims
}

// Start implements source.Source.
func (p *podEvents) Start(_ context.Context, q queue) error {
	p.pods.Follow(func(before, after *pvccache.PodUses) { p.changed(before, after, q) })
	return nil
}

// WaitForSync implements source.SyncingSource.
func (p *podEvents) WaitForSync(ctx context.Context) error { return p.pods.AwaitSync(ctx) }

// changed has the claims of a pod looked at that begins to count, and after a while
// those of one that ceases to: nothing else of a pod makes a difference.
func (p *podEvents) changed(before, after *pvccache.PodUses, q queue) {
	begins := counts(after)
	if counts(before) == begins {
		return
	}
	pod, in := before, settle
	if begins {
		pod, in = after, 0
	}
	for _, name := range pod.Claims() {
		if name == "" {
			p.all(pod.Namespace, in, q)
			continue
		}
		claim := types.NamespacedName{Namespace: pod.Namespace, Name: name}
		if begins || !p.goes(claim) {
			q.AddAfter(ctrl.Request{NamespacedName: claim}, in)
		}
	}
}

// goes tells whether a claim is on its way out. Nothing is said on it any more, and a
// thousand of them that go together are not looked at for it.
func (p *podEvents) goes(key types.NamespacedName) bool {
	claim, err := p.claims.Get(context.Background(), key)
	return err == nil && claim != nil && claim.DeletionTimestamp != nil
}

// all has every claim of a namespace looked at: nobody can tell which a pod uses.
func (p *podEvents) all(namespace string, in time.Duration, q queue) {
	claims, err := p.claims.In(context.Background(), namespace)
	if err != nil {
		return // a cache that runs has no errors
	}
	for i := range claims {
		if claims[i].DeletionTimestamp == nil {
			q.AddAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&claims[i])}, in)
		}
	}
}

func counts(pod *pvccache.PodUses) bool { return pod != nil && !pod.Over }
