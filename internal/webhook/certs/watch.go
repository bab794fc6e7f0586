package certs

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// pass is the one key of the queue: every event asks for the same pass.
const pass = "webhook-certificates"

// Watched are the objects whose changes call for a pass, each one by its name
// alone: the operator may read no other Secret.
func (k *Keeper) Watched() map[client.Object]cache.ByObject {
	watched := map[client.Object]cache.ByObject{}
	if name := k.options.MutatingConfiguration; name != "" {
		watched[&admissionv1.MutatingWebhookConfiguration{}] = cache.ByObject{Field: named(name)}
	}
	if name := k.options.ValidatingConfiguration; name != "" {
		watched[&admissionv1.ValidatingWebhookConfiguration{}] = cache.ByObject{Field: named(name)}
	}
	if s, ok := k.options.Source.(*SharedSecret); ok {
		watched[&corev1.Secret{}] = cache.ByObject{
			Namespaces: map[string]cache.Config{s.Key.Namespace: {FieldSelector: named(s.Key.Name)}},
		}
	}
	return watched
}

func named(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }

// Begin makes the first pass, so that a server started afterwards has a
// certificate to present.
func (k *Keeper) Begin(ctx context.Context) error {
	return retry.OnError(retry.DefaultBackoff, lostRace, func() error {
		_, err := k.Keep(ctx)
		return err
	})
}

// Setup has the manager make a pass after every change, on every replica. The
// manager's cache must hold what Watched names.
func (k *Keeper) Setup(mgr ctrl.Manager) error {
	k.options.Events = mgr.GetEventRecorder("lockstep")
	wake := make(chan event.GenericEvent, 1)
	wake <- event.GenericEvent{} // the first pass may have been made before the watches began
	toPass := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: pass}}}
	})
	b := ctrl.NewControllerManagedBy(mgr).Named(pass).
		WithOptions(controller.Options{NeedLeaderElection: new(false), MaxConcurrentReconciles: 1}).
		WatchesRawSource(source.Channel(wake, toPass))
	for object := range k.Watched() {
		b = b.Watches(object, toPass)
	}
	if err := b.Complete(k); err != nil {
		return err
	}
	return k.watchFiles(mgr, wake)
}

// Reconcile makes one pass.
func (k *Keeper) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	next, err := k.Keep(ctx)
	if lostRace(err) {
		return reconcile.Result{RequeueAfter: retry.DefaultBackoff.Duration}, nil
	}
	return reconcile.Result{RequeueAfter: next}, err
}

func (k *Keeper) watchFiles(mgr ctrl.Manager, wake chan<- event.GenericEvent) error {
	files, ok := k.options.Source.(*Files)
	if !ok {
		return nil
	}
	return mgr.Add(everyReplica(func(ctx context.Context) error {
		return files.Run(ctx, func() {
			select {
			case wake <- event.GenericEvent{}:
			default: // a pass is asked for already
			}
		})
	}))
}

// everyReplica is run by leaders and others alike.
type everyReplica func(context.Context) error

func (f everyReplica) Start(ctx context.Context) error { return f(ctx) }

func (everyReplica) NeedLeaderElection() bool { return false }
